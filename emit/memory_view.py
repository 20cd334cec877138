"""Memory per device and on the host, as a table and term by term."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from emit import wording
from planner import units
from planner.plans.memory import DeviceMemory, HostMemory, Memory, Term, total
from planner.plans.oracle import Confirmation, Oracle

_PER_TABLE = 4
"""Columns that fit on 80 characters."""


def table(memory: Memory, oracle: Oracle | None = None) -> RenderableType:
    """Rows are kinds of memory, columns devices and RAM, in MiB.

    total (RAM: available) - used before - predicted = stays free. What devices without memory of their own take
    is taken from RAM, too; where RAM ends before their limit, what stays free of it is what they have.
    """
    all_columns = columns(memory)
    groups = [all_columns[i : i + _PER_TABLE] for i in range(0, len(all_columns), _PER_TABLE)]
    return Group(*(_table(group) for group in groups), *((Text(confirmation(oracle)),) if oracle else ()))


def columns(memory: Memory) -> list[tuple[str, dict[str, str]]]:
    """Device or ``RAM``, and its cells in MiB by the name of their row in ``ROWS``."""
    return [*(_device(device) for device in memory.devices), _host(memory.host)]


def confirmation(oracle: Oracle) -> str:
    """The engine's word in one line."""
    by = oracle.engine + (" (an earlier answer)" if oracle.stored else "")
    if oracle.outcome is Confirmation.CONFIRMED:
        return f"confirmed by {by} within {units.mib(oracle.residual_bytes)}"
    if oracle.outcome is Confirmation.DISAGREES:
        return f"{by} counts otherwise, by up to {units.mib(oracle.residual_bytes)} [oracle-disagrees]"
    return f"not confirmed: {wording.clean(oracle.reason)}"


ROWS = (
    "total or available",
    "used before",
    "model",
    "context",
    "compute",
    "expert cache",
    "prompt cache",
    "overhead",
    "predicted",
    "taken by devices",
    "stays free",
    "of it pinned",
    "of it mapped",
    "of it repacked",
)


def _table(group: list[tuple[str, dict[str, str]]]) -> Table:
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    result.add_column("MiB", no_wrap=True)
    for name, _ in group:
        result.add_column(Text(wording.clean(name)), justify="right", no_wrap=True)
    for row in ROWS:
        cells = [values.get(row, "") for _, values in group]
        if any(cells):
            style = "bold" if row in ("predicted", "stays free") else ""
            result.add_row(Text(row), *map(Text, cells), style=style)
    return result


def _device(device: DeviceMemory) -> tuple[str, dict[str, str]]:
    return device.id, {
        "total or available": _mib(device.total_bytes),
        "used before": _mib(device.used_before_bytes),
        "model": _mib(total(device.model)),
        "context": _mib(total(device.context)),
        "compute": _mib(total(device.compute)),
        "expert cache": _mib(total(device.cache)) if device.cache else "",
        "overhead": _mib(total(device.overhead)),
        "predicted": _mib(device.predicted_bytes),
        "stays free": _mib(device.headroom_bytes),
    }


def _host(host: HostMemory) -> tuple[str, dict[str, str]]:
    known = host.available_bytes is not None and host.headroom_bytes is not None
    return "RAM", {
        "total or available": _mib(host.available_bytes or 0) if known else "unknown",
        "model": _mib(total(host.model)),
        "context": _mib(total(host.context)),
        "compute": _mib(total(host.compute)),
        "prompt cache": _mib(host.prompt_cache_bytes) if host.prompt_cache_bytes else "",
        "overhead": _mib(total(host.overhead) - host.prompt_cache_bytes),
        "predicted": _mib(host.predicted_bytes),
        "taken by devices": _mib(host.shared_bytes) if host.shared_bytes else "",
        "stays free": _mib(host.headroom_bytes or 0) if known else "unknown",
        "of it pinned": _mib(host.pinned_bytes),
        "of it mapped": _mib(host.mapped_bytes),
        "of it repacked": _mib(host.repacked_bytes) if host.repacked_bytes else "",
    }


def _mib(n_bytes: int) -> str:
    return units.mib(n_bytes).removesuffix(" MiB")


def terms(memory: Memory) -> RenderableType:
    """Every summand with its formula."""
    result = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("where", "term"):
        result.add_column(name, no_wrap=True)
    result.add_column("MiB", justify="right", no_wrap=True)
    result.add_column("how", overflow="fold")
    for device in memory.devices:
        parts = (device.model, device.context, device.compute, device.cache, device.overhead)
        _term_rows(result, device.id, parts)
    host = memory.host
    _term_rows(result, "RAM", (host.model, host.context, host.compute, host.overhead))
    return result


def _term_rows(result: Table, where: str, parts: tuple[tuple[Term, ...], ...]) -> None:
    for term in (term for part in parts for term in part):
        how = Text(wording.clean(term.detail)).append(f" ({term.source.value})", style="dim")
        result.add_row(Text(wording.clean(where)), Text(wording.clean(term.name)), _mib(term.n_bytes), how)
