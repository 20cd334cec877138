"""Memory as bars and as a table of HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emit import html_words, memory_view
from planner import units
from planner.plans.memory import DeviceMemory, HostMemory, Memory, total
from planner.plans.plan import Plan

_KINDS: Final = ("used before", "model", "context", "compute", "expert cache", "prompt cache", "overhead", "free")
STYLE: Final = """\
.bar { display: flex; height: 1.4rem; border: 1px solid #8888; margin-bottom: .8rem; }
.bar span { display: block; height: 100%; } .key span { padding: 0 .5rem; margin-right: .4rem; }
.k0 { background: #777; } .k1 { background: #36c; } .k2 { background: #c63; } .k3 { background: #693; }
.k4 { background: #939; } .k5 { background: #288; } .k6 { background: #a83; } .k7 { background: transparent; }
.key span { color: #fff; } .key .k7 { border: 1px solid #8888; color: inherit; }
"""


def memory(plan: Plan) -> str:
    """A bar per device and for RAM, the key of the colours, the table, the engine's word."""
    found = plan.chosen.memory
    columns = memory_view.columns(found)
    rows = ([name, *(cells.get(name, "") for _, cells in columns)] for name in memory_view.ROWS)
    shown = (row for row in rows if any(row[1:]))
    parts = [*_bars(found), html_words.table(("MiB", *(name for name, _ in columns)), shown, "numbers")]
    if plan.oracle is not None:
        parts.append(f"<p>{html_words.text(memory_view.confirmation(plan.oracle))}</p>")
    return "\n".join(parts)


def _bars(found: Memory) -> Iterator[str]:
    key = "".join(f'<span class="k{i}">{name}</span>' for i, name in enumerate(_KINDS))
    yield f'<p class="key">{key}</p>'
    for device in found.devices:
        yield _bar(device.id, device.total_bytes, _device(device))
    if found.host.available_bytes is not None:
        yield _bar("RAM", found.host.available_bytes, _host(found.host))


def _device(device: DeviceMemory) -> tuple[int, ...]:
    terms = (device.model, device.context, device.compute, device.cache, (), device.overhead)
    return (device.used_before_bytes, *map(total, terms))


def _host(host: HostMemory) -> tuple[int, ...]:
    parts = map(total, (host.model, host.context, host.compute))
    prompts = host.prompt_cache_bytes
    return (host.shared_bytes, *parts, 0, prompts, total(host.overhead) - prompts)


def _bar(name: str, limit: int, used: tuple[int, ...]) -> str:
    """Shares of the limit, or of what is asked for where that is more."""
    whole = max(limit, sum(used), 1)
    pieces = (*used, max(limit - sum(used), 0))
    spans = "".join(
        f'<span class="k{i}" style="width:{100 * n / whole:.2f}%" title="{_KINDS[i]} {units.mib(n)}"></span>'
        for i, n in enumerate(pieces)
        if n
    )
    over = f", {units.mib(sum(used) - limit)} too much" if sum(used) > limit else ""
    label = html_words.text(f"{name}: {units.mib(sum(used))} of {units.mib(limit)}{over}")
    return f'<div>{label}</div>\n<div class="bar">{spans}</div>'
