"""Which experts a model uses and what a pool of them would serve, for ``inspect --routing``."""

from __future__ import annotations

from typing import Final

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import wording
from planner import units
from planner.facts.model import Model
from planner.facts.routing import Ground, LayerUse, Policy, PoolSet, RoutingStats

NAMES: Final = {
    Policy.SERVED: "llama.cpp",
    Policy.LRU: "LRU",
    Policy.LFU: "LFU",
    Policy.LAYER_LRU: "layer LRU",
    Policy.STATIC: "fixed set",
    Policy.LAYERS: "whole layers",
}
_BAR: Final = 20
_SHOWN: Final = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
_LAYERS_SHOWN: Final = 12


def routing_view(stats: RoutingStats) -> RenderableType:
    """Figures of the recording, the use per layer, and hit rates by size of the pool."""
    return Group(
        Text("Routing", style="bold"),
        Padding(_facts(stats), (0, 0, 1, 2)),
        Text("Selections by the most used experts of each layer", style="bold"),
        Padding(_shares(stats), (0, 0, 1, 2)),
        Text("Use per layer", style="bold"),
        Padding(_layers(stats), (0, 0, 1, 2)),
        Text("Hit rate of a pool of experts, by its size", style="bold"),
        Padding(_curves(stats), (0, 0, 0, 2)),
        Padding(Text(_grounds(stats)), (0, 0, 1, 2)),
    )


def pool_view(model: Model, found: PoolSet) -> RenderableType:
    """What a pool of one size holds and hits, and how engines are told."""
    stats = model.routing
    assert stats is not None
    share, n = found.n_bytes / stats.expert_bytes, len(found.experts)
    layers = [found.entries(layer) for layer in found.layers]
    mib = found.budget_bytes // units.MIB
    rows = [
        (
            "a fixed set",
            f"{units.counted(n, 'expert')}, {min(layers)} to {max(layers)} per layer, {units.mib(found.n_bytes)}",
        ),
        ("its hits", f"{found.hit_rate:.1%} of the selections it was chosen by"),
        *((f"{NAMES[curve.policy]} pool", f"{curve.at(share):.1%} hits") for curve in stats.curves[:3]),
        ("llama.cpp", f"--moe-cache-mib {mib} (builds that list it; b11505 and later)"),
        ("BigMoeOnEdge", f"--moe-stream --cache-mb {mib}"),
        ("working-set fork", "-o FILE.csv writes its plan (qwen35moe and qwen4exp)"),
    ]
    table = Table.grid(padding=(0, 2, 0, 0))
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return Group(Text(f"A pool of {units.size(found.budget_bytes)}", style="bold"), Padding(table, (0, 0, 0, 2)))


def _facts(stats: RoutingStats) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    routing, n_expert = stats.routing, stats.routing.n_expert
    rows = [
        ("from", f"{wording.clean(routing.source)} ({wording.clean(routing.method)})"),
        ("tokens", f"{units.count(stats.n_tokens)} of {stats.phase}, {routing.n_used} of {n_expert} experts each"),
        ("one token uses", f"{units.size(stats.cycle_bytes)} of {units.size(stats.expert_bytes)} of experts"),
    ]
    if routing.text:
        rows.insert(1, ("text", wording.clean(routing.text)))
    if stats.overlap:
        again = ", ".join(f"{share:.0%} at {lag}" for lag, share in stats.overlap)
        rows.append(("used again", f"{again} {'token' if stats.overlap[-1][0] == 1 else 'tokens'} distance"))
    held = stats.stability
    if held is not None:
        change = f"{held.learned:.0%} hits on the second half, its own best set {held.fitted:.0%}"
        rows.append(("stable", f"a fixed {held.share:.0%} chosen on the first half: {change}"))
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _shares(stats: RoutingStats) -> Table:
    table = _table("most used", "selections")
    for share, taken in stats.shares:
        table.add_row(Text(f"{share:.0%}"), Text(f"{taken:.1%}"), Text(_bar(taken)))
    return table


def _layers(stats: RoutingStats) -> Table:
    """The layers, evenly thinned where there are many."""
    table = _table("layer", "entropy", "effective experts", "touched", "top tenth takes")
    layers, n_expert = stats.layers, stats.routing.n_expert
    step = -(-len(layers) // _LAYERS_SHOWN)
    shown: tuple[LayerUse, ...] = layers[::step]
    for use in shown:
        cells = (
            str(use.layer),
            f"{use.entropy_bits:.2f} bits",
            f"{use.effective:.1f} of {n_expert}",
            str(use.touched),
            f"{use.top_share:.1%}",
        )
        table.add_row(*map(Text, cells), Text(_bar(use.effective / n_expert)))
    return table


def _curves(stats: RoutingStats) -> Table:
    adaptive = stats.adaptive
    others = [curve for curve in stats.curves if curve is not adaptive]
    table = _table("pool", "bytes", *(NAMES[curve.policy] for curve in (adaptive, *others)))
    for share in _SHOWN:
        rates = [f"{curve.at(share):.1%}" for curve in (adaptive, *others)]
        size = units.size(share * stats.expert_bytes)
        table.add_row(Text(f"{share:.0%}"), Text(size), *map(Text, rates))
    return table


def _grounds(stats: RoutingStats) -> str:
    if stats.adaptive.ground is Ground.REPLAY:
        return (
            "LRU and LFU are replays of the recorded order, llama.cpp's own pool without the prompt in it; a fixed set "
            "and whole layers are scored on the counts they are chosen by."
        )
    return (
        "There are counts, but no order: LRU is a lower bound (tokens drawn independently; real ones repeat), the "
        "fixed set an upper bound of fixed sets."
    )


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    return table


def _bar(share: float) -> str:
    return "#" * round(min(max(share, 0.0), 1.0) * _BAR)
