"""Words and numbers as the terminal shows them; strings from files lose what could steer a terminal."""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Final

from planner import units

if TYPE_CHECKING:
    from planner.facts.machine import Machine
    from planner.facts.observed import Verified
    from planner.facts.reading import Reading
    from planner.plans.decision import Decision, Evidence, Scalar
    from planner.plans.memory import Memory
    from planner.plans.plan import Candidate, Plan, Shortfall
    from planner.plans.speed import Band

_UNSAFE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
"""Control, format (bidi overrides, zero-width), surrogates, private use, line and paragraph separators."""


def is_unsafe(char: str) -> bool:
    """True for a character that can steer a terminal or reorder what is read on it."""
    return unicodedata.category(char) in _UNSAFE


def clean(text: str) -> str:
    """Every unsafe character as ``\\xNN`` or ``\\uNNNN``; the rest as it is."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escape(char) if is_unsafe(char) else char for char in text)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def band(value: Band, unit: str) -> str:
    """``"41.9 tok/s (36.0 to 48.2)"``; seconds that are minutes or hours as such."""
    if unit == "s" and value.high >= 120:
        return f"{units.duration(value.mid)} ({units.duration(value.low)} to {units.duration(value.high)})"
    return f"{units.number(value.mid)} {unit} ({units.number(value.low)} to {units.number(value.high)})"


def scalar(value: Scalar) -> str:
    """A value of a decision, for people."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return units.count(value)
    return clean(value) if isinstance(value, str) else f"{value:.4g}"


_ONE: Final = {
    "blocks": "block",
    "cores": "core",
    "devices": "device",
    "experts": "expert",
    "slots": "slot",
    "tokens": "token",
    "ubatches": "ubatch",
}
"""Units of evidence that are counts, and one of each."""


def evidence(item: Evidence) -> str:
    """The value with its unit."""
    value = item.value
    if isinstance(value, int | float) and not isinstance(value, bool):
        if item.unit == "bytes":
            exact = f" ({units.count(value)} B)" if abs(value) >= units.KIB else ""
            return units.size(value) + exact
        if item.unit == "bytes/s":
            return units.rate(value)
        if item.unit == "s":
            return f"{value:.3g} s" if value < 120 else units.duration(value)
    if value == 1 and item.unit in _ONE:
        return f"1 {_ONE[item.unit]}"
    return f"{scalar(value)} {clean(item.unit)}".rstrip()


def decided(item: Decision) -> str:
    """The value of a decision; in binary units where its evidence says that it is bytes."""
    in_bytes = bool(item.value) and any(e.unit == "bytes" and e.value == item.value for e in item.because)
    if in_bytes and isinstance(item.value, int | float) and not isinstance(item.value, bool):
        return units.mib(item.value)
    return scalar(item.value)


def reading(value: Reading | None, unit: str) -> str:
    """A measured quantity with its source; ``unit`` is ``bytes/s`` or ``flops``."""
    if value is None:
        return "not known (estimated where needed)"
    shown = units.rate(value.value) if unit == "bytes/s" else f"{value.value / 1e12:,.1f} TFLOPS"
    how = f", {clean(value.method)}" if value.method else ""
    if value.spread:
        share = value.spread / value.value
        how += f", ±{share:.0%}"
    return f"{shown} ({value.source.value}{how})"


def assumed(machine: Machine, candidate: Candidate) -> str:
    """The rates the speed rests on that nobody measured, the first two by name; empty if there is none."""
    from planner.cost.behind import assumed_rates
    from planner.cost.rates import rates_of

    words = assumed_rates(rates_of(machine), candidate.settings, pages=candidate.verdict == "pages")
    more = f" and {len(words) - 2} more" if len(words) > 2 else ""
    return clean(", ".join(words[:2])) + more


def speed(candidate: Candidate) -> str:
    """``"decode 41.9 tok/s (36.0 to 48.2), prefill …, a turn in 13.2 s (…)"``."""
    s = candidate.speed
    return (
        f"decode {band(s.decode_tps, 'tok/s')}, prefill {band(s.prefill_tps, 'tok/s')}, a turn in {band(s.turn_s, 's')}"
    )


def free(candidate: Candidate) -> str:
    """Headroom per device; of the host where there is no device, or where RAM binds those that share it."""
    devices, host = candidate.memory.devices, candidate.memory.host.headroom_bytes
    bound = [clean(device.id) for device in devices if device.is_bound_by_ram]
    parts = [f"{units.mib(d.headroom_bytes)} of {clean(d.id)}" for d in devices if not d.is_bound_by_ram]
    sharing = f", which {' and '.join(bound)} share{'s' if len(bound) == 1 else ''}," if bound else ""
    lacks = ""
    if host is not None and (bound or not devices):
        if host < 0:
            lacks = f"{units.size(-host)} more than RAM{sharing} holds"
        else:
            parts.append(f"{units.size(host)} of RAM{sharing}")
    said = [f"{' and '.join(parts)} stay free"] if parts else []
    said += [lacks] if lacks else []
    return "; ".join(said) or "free memory unknown"


def correction(verified: Verified) -> str:
    """``"decode x0.62, prefill x1.10 of the raw prediction (3 runs); n_ubatch 1024 kept"``."""
    ratios = [
        f"{name} x{ratio:.2f}"
        for name, ratio in (("decode", verified.decode_ratio), ("prefill", verified.prefill_ratio))
        if ratio is not None
    ]
    runs = units.counted(verified.runs, "run")
    bounded = ", cut to its bounds" if verified.bounded else ""
    parts = [f"{', '.join(ratios)} of the raw prediction ({runs}{bounded})"] if ratios else []
    parts += [f"{units.mib(n)} more of {clean(device)}" for device, n in verified.extra]
    kept = ", ".join(f"{clean(name)} {clean(value)}" for name, value in verified.kept)
    parts += [f"{kept} kept"] if kept else []
    return "; ".join(parts) or ("its speed was not learned" if verified.slower else "as predicted")


_OPENING: Final = {
    "fits": "Fits",
    "pages": "Runs, but reads experts from disk",
    "refused": "Does not fit",
}


def headline(plan: Plan) -> str:
    """The verdict in one sentence; says which rates are assumed."""
    name, verdict = clean(plan.model.name or plan.model.arch), plan.verdict
    if plan.refusal is not None:
        reason = clean(plan.refusal.reason).rstrip(".")
        opening = _OPENING[verdict] if plan.refusal.shortfalls else "Does not start"
        lacks = f"; {_lacks(plan.refusal.shortfalls, plan.chosen.memory)}" if plan.refusal.shortfalls else ""
        return f"{opening}: {name}. {reason[:1].upper()}{reason[1:]}{lacks}."
    chosen = plan.chosen
    where = " + ".join(map(clean, chosen.settings.devices)) or "the CPU"
    context = f"{units.counted(chosen.settings.n_ctx, 'token')} of context"
    if chosen.shortfalls:
        return f"Does not fit: {name} on {where} with {context}; {_lacks(chosen.shortfalls, chosen.memory)}."
    text = f"{_OPENING[verdict]}: {name} on {where} with {context}; {speed(chosen)}; {free(chosen)}."
    guesses = assumed(plan.machine, chosen)
    return f"{text} The speed rests on assumed rates: {guesses}." if guesses else text


def _lacks(items: tuple[Shortfall, ...], memory: Memory) -> str:
    return ", ".join(f"{'RAM' if item.device == 'host' else clean(item.device)} {lack(item, memory)}" for item in items)


def lack(item: Shortfall, memory: Memory) -> str:
    """``"lacks 6,390 MiB, 1,024 MiB of headroom included"``, or ``"lacks 512 MiB of its headroom"``."""
    short = item.needed_bytes - item.available_bytes
    kept = min(_kept(item, memory), short)
    if kept <= 0:
        return f"lacks {units.mib(short)}"
    return f"lacks {units.mib(short)}" + (
        " of its headroom" if kept == short else f", {units.mib(kept)} of headroom included"
    )


def _kept(item: Shortfall, memory: Memory) -> int:
    """What is to stay free where an item lacks memory; 0 where the limit is another one (page-locked memory)."""
    device = next((device for device in memory.devices if device.id == item.device), None)
    if device is not None:
        return device.total_bytes - device.used_before_bytes - item.available_bytes
    host = memory.host
    if host.available_bytes is None or item.needed_bytes != host.unevictable_bytes:
        return 0
    return host.available_bytes - item.available_bytes
