"""Which rates a plan rests on, and which of them are assumed."""

from __future__ import annotations

from planner.cost.rates import Rates
from planner.facts.reading import Reading, Source
from planner.plans.settings import LoadMode, Settings
from planner.plans.speed import Resource


def behind(rates: Rates, settings: Settings) -> dict[Resource, tuple[tuple[str, Reading], ...]]:
    """Per resource, the named rates that its seconds come from under these settings; never empty."""
    gpus = [(device, rates.gpus[device]) for device in settings.devices]
    pinned = settings.load_mode is LoadMode.NONE
    link = tuple(
        (f"{d} {'pinned' if pinned else 'pageable'} link", g.pinned if pinned else g.pageable) for d, g in gpus
    )
    ram, cores = ("RAM", rates.ram), ("one core", rates.core_flops)
    return {
        Resource.RAM: (ram,),
        Resource.GPU: tuple((f"{d} memory", g.memory) for d, g in gpus) or (ram,),
        Resource.PCIE: link[:1] or (ram,),
        Resource.DISK: (("disk", rates.disk),),
        Resource.COMPUTE: tuple((f"{d} f16", g.f16) for d, g in gpus) or (cores,),
    }


def assumed_rates(rates: Rates, settings: Settings, *, pages: bool) -> tuple[str, ...]:
    """Words for every rate that a plan rests on and that is assumed, e.g. ``"RAM 50 GB/s"``.

    Timed layers make the link and the multiply rate of their device needless.
    """
    found: list[str] = []
    first = settings.devices[0] if settings.devices else "CPU"
    for resource, named in behind(rates, settings).items():
        if resource is Resource.DISK and not pages:
            continue
        if resource is Resource.PCIE and (first, "host") in rates.timed:
            continue
        if resource is Resource.COMPUTE and (first, "device") in rates.timed:
            continue
        unit, scale = ("TFLOP/s", 1e12) if resource is Resource.COMPUTE else ("GB/s", 1e9)
        found += [f"{name} {r.value / scale:,.3g} {unit}" for name, r in named if r.source is Source.ASSUMED]
    return tuple(dict.fromkeys(found))
