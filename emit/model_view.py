"""What one GGUF holds, for ``inspect``."""

from __future__ import annotations

from itertools import pairwise

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from emit import wording
from emit.model_facts import KV_TYPES, Kind, by_role, kinds, kv_bytes_per_token, window_bytes_per_cell
from planner import units
from planner.facts.model import AttentionKind, Model, Role


def model_view(model: Model) -> RenderableType:
    """Header facts, bytes by role, KV bytes per token, blocks by kind, notes."""
    parts: list[RenderableType] = [Text(_title(model), style="bold"), Padding(_facts(model), (0, 0, 1, 2))]
    parts += [Text("Bytes by role", style="bold"), Padding(_roles(model), (0, 0, 1, 2))]
    parts += [Text("Context bytes per token", style="bold"), Padding(_kv(model), (0, 0, 1, 2))]
    parts += [Text("Blocks", style="bold"), Padding(_blocks(model), (0, 0, 1, 2))]
    if model.routing is not None:
        from emit.routing_view import routing_view

        parts.append(routing_view(model.routing))
    if model.notes:
        parts += [Text("Notes", style="bold"), *(Text(f"- {wording.clean(note)}") for note in model.notes)]
    return Group(*parts)


def _title(model: Model) -> str:
    name = wording.clean(model.name or "(no name)")
    if not model.is_moe:
        return f"{name}: dense, {units.size(model.file_bytes)}, no routed experts"
    share = 100 * model.expert_bytes / max(model.file_bytes, 1)
    return (
        f"{name}: {units.counted(model.n_expert, 'expert')}, {model.n_expert_used} per token; "
        f"{units.size(model.expert_bytes)} of {units.size(model.file_bytes)} are experts ({share:.0f} %)"
    )


def _facts(model: Model) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    nextn = f", the last {model.n_layer_nextn} for multi-token prediction" if model.n_layer_nextn else ""
    experts = f", expert width {units.count(model.n_ff_exp)}" if model.n_ff_exp else ""
    trained = units.counted(model.n_ctx_train, "token") if model.n_ctx_train else "not stated"
    rows = [
        ("file", wording.clean(model.path) + (f" ({len(model.shards)} shards)" if len(model.shards) > 1 else "")),
        ("architecture", wording.clean(model.arch)),
        ("blocks", f"{model.n_layer}{nextn}"),
        ("width", f"{units.count(model.n_embd)}{experts}, vocabulary {units.count(model.n_vocab)}"),
        ("training context", trained),
        ("attention", _attention(model)),
        ("output", "own matrix" if model.has_output else "tied to the embedding (counted on both sides)"),
        ("fingerprint", wording.clean(model.fingerprint)),
    ]
    for name, value in rows:
        table.add_row(Text(name), Text(value))
    return table


def _attention(model: Model) -> str:
    counts: dict[AttentionKind, int] = {}
    for layer in model.layers:
        counts[layer.kind] = counts.get(layer.kind, 0) + 1
    text = ", ".join(f"{count} {kind.value}" for kind, count in counts.items())
    return text if model.attention_known else f"{text} (rules of this architecture are assumed)"


def _roles(model: Model) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in ("role", "tensors", "bytes", "share"):
        table.add_column(name, justify="left" if name == "role" else "right", no_wrap=True)
    table.add_column("types", overflow="fold")
    found = by_role(model.tensors)
    whole = max(sum(entry.n_bytes for entry in found.values()), 1)
    for role, entry in found.items():
        share = f"{100 * entry.n_bytes / whole:.1f} %"
        types = " ".join(wording.clean(kind) for kind in entry.types)
        cells = (role.value.replace("_", " "), units.count(entry.n_tensors), units.size(entry.n_bytes), share, types)
        table.add_row(*map(Text, cells))
    return table


def _kv(model: Model) -> Table:
    """Bytes by cache type (K and V alike); a column for sliding windows only where there are any."""
    names = ["K and V", "per token", "32,768 tokens"]
    windows = any(layer.window for layer in model.layers)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for name in [*names, "sliding windows, per cell"] if windows else names:
        table.add_column(name, justify="left" if name == "K and V" else "right", no_wrap=True)
    for kind in KV_TYPES:
        cost, window = kv_bytes_per_token(model, kind), window_bytes_per_cell(model, kind)
        if cost is None or window is None:
            table.add_row(Text(kind), Text("no whole blocks"))
            continue
        cells = [kind, units.size(cost), units.size(cost * 32768)]
        table.add_row(*map(Text, [*cells, units.size(window)] if windows else cells))
    state = sum(layer.state_r + layer.state_s for layer in model.layers if not layer.nextn)
    if state:
        table.add_row(Text("state"), Text("-"), Text(f"{units.size(4 * state)} per slot"))
    return table


def _blocks(model: Model) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("blocks", overflow="fold", max_width=28)
    for name in ("attention", "heads", "each", "experts"):
        table.add_column(name, justify="right" if name in ("each", "experts") else "left", no_wrap=True)
    table.add_column("types of experts", overflow="fold")
    for kind in kinds(model):
        table.add_row(*map(Text, _block(kind)))
    return table


def _block(kind: Kind) -> tuple[str, ...]:
    layer = kind.layer
    experts = next(((n, types) for role, n, types in kind.roles if role is Role.EXPERT), (0, ()))
    window = f" {layer.window}" if layer.window else ""
    heads = f"{layer.n_head}/{layer.n_head_kv} x {layer.head_k}/{layer.head_v}" if layer.n_head_kv else "-"
    return (
        _ranges(kind.ranges),
        f"{layer.kind.value}{window}" + (" (nextn)" if layer.nextn else ""),
        heads,
        units.size(kind.n_bytes),
        units.size(experts[0]) if experts[0] else "-",
        wording.clean(" ".join(experts[1])),
    )


def _ranges(ranges: tuple[tuple[int, int], ...]) -> str:
    """``0-5, 8``, or ``0-34 by 2`` for single blocks at one distance."""
    steps = {after[0] - before[0] for before, after in pairwise(ranges)}
    if len(ranges) > 2 and len(steps) == 1 and all(first == last for first, last in ranges):
        return f"{ranges[0][0]}-{ranges[-1][0]} by {steps.pop()}"
    return ", ".join(f"{first}" if first == last else f"{first}-{last}" for first, last in ranges)
