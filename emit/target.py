"""Plans in the words of engines other than llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from emit import flag_spell
from emit.flag_spell import Spelled
from emit.flag_table import BIGMOE_FLAGS, IK_FLAGS, Flag, Kind
from planner.cost.streaming import cache_mib
from planner.errors import TargetError
from planner.facts.workload import Target
from planner.plans.plan import Candidate, Caution, Plan, Verdict
from planner.plans.settings import LoadMode, Settings, Tool

PROGRAMS: Final = {Target.IK: Tool.SERVER.value, Target.BIGMOE: "bmoe-cli"}
_TABLES: Final = {Target.IK: IK_FLAGS, Target.BIGMOE: BIGMOE_FLAGS}
_STREAMED: Final = ("qwen2moe", "qwen3moe", "qwen35moe", "gemma4", "gpt-oss", "lfm2moe")
"""Architectures of BigMoeOnEdge's README (0004f3c8)."""
_OWN: Final = ("run_time_repack", "moe_stream", "stream_cache_mib", "dense_weights", "cpu_only", "chatml", "session")
"""Settings that llama.cpp does not have."""

_CAUTIONS: Final = {
    Target.IK: (
        "Memory and speed are llama.cpp's: ik_llama.cpp has kernels and buffers of its own. -mla, -amb, fused MoE and "
        "checkpoints stay at its defaults. Experts are placed with -ot: its sources disagree from which end its "
        "--n-cpu-moe counts."
    ),
    Target.BIGMOE: (
        "Memory and speed are llama.cpp's: bmoe-cli reads experts another way, and KV type, flash attention, batch and "
        "read lanes stay at its defaults. It takes requests on stdin; its scripts/bmoe-serve.py serves HTTP."
    ),
}


def caution(target: Target) -> Caution | None:
    """What is assumed of an engine that is not llama.cpp."""
    return Caution("target-assumed", _CAUTIONS[target]) if target in _CAUTIONS else None


def spelled(plan: Plan, candidate: Candidate) -> tuple[Spelled, ...]:
    """Flags of the plan's engine.

    Raises:
        TargetError: what the engine cannot do, with what goes without it.
    """
    target = plan.workload.target
    own = _bigmoe(plan, candidate) if target is Target.BIGMOE else _ik(candidate.settings)
    found = []
    for row in _TABLES[target]:
        found += [Spelled(row.setting, tokens, row.reason) for tokens in _tokens(row, plan, candidate, own)]
    return tuple(found)


def _ik(settings: Settings) -> dict[str, object]:
    """Repacking reads the weights into memory of its own, and no GPU copies from its layouts."""
    repacks = settings.repack and not settings.devices and settings.load_mode is LoadMode.NONE
    return {"run_time_repack": True} if repacks else {}


def _bigmoe(plan: Plan, candidate: Candidate) -> dict[str, object]:
    """Settings that only BigMoeOnEdge has: it streams where RAM does not hold the hot part of the model. What is
    streamed lies in RAM as in the file, so there is no repacked copy to turn off."""
    model, settings = plan.model, candidate.settings
    usual = flag_spell.default_devices(plan.machine, rpc=False)
    if settings.devices not in ((), usual):
        raise TargetError("--devices", expected="all devices or none", found=", ".join(settings.devices))
    own: dict[str, object] = {"chatml": True, "session": True}
    if not settings.devices:
        own |= {"cpu_only": "cpu"}
    if candidate.verdict is not Verdict.PAGES:
        return own
    if model.arch not in _STREAMED:
        raise TargetError(
            "--moe-stream",
            expected=f"an architecture that its documents list ({', '.join(_STREAMED)})",
            found=model.arch,
            advice="bmoe-cli --list-archs prints those of a build",
        )
    cache = cache_mib(model, plan.machine.ram, candidate.memory.host)
    return own | {"moe_stream": True, "stream_cache_mib": cache, "dense_weights": "anon", "repack": True}


def _tokens(row: Flag, plan: Plan, candidate: Candidate, own: dict[str, object]) -> Iterator[tuple[str, ...]]:
    name, settings = row.setting, candidate.settings
    if name in own or name in _OWN:
        value = own.get(name)
    else:
        value = flag_spell.value_of(row, settings, plan.model, plan.machine)
    if value is None or (name == "split_mode" and len(settings.devices) < 2):
        return
    if row.choices and str(value) not in row.choices:
        raise _refused(row, value, plan.workload.target)
    if name == "load_mode":
        yield from flag_spell.old_load_mode(LoadMode(str(value)), Tool.SERVER) if row.always else ()
    elif name == "n_cpu_moe":
        if value:
            pattern = flag_spell.first_blocks(int(str(value)))
            yield (row.names[0], pattern) if row.names else ("-ot", f"{pattern}=CPU")
    elif row.names or (row.kind is Kind.SWITCH and value is False):
        yield flag_spell.spelling(row, value, Tool.SERVER)
    elif row.loss and value not in row.neutral:
        raise _refused(row, value, plan.workload.target)


def _refused(row: Flag, value: object, target: Target) -> TargetError:
    flag = flag_spell.flag_of(row.setting) or row.setting
    expected = f"{' or '.join(map(_word, row.choices or row.neutral))} with {target.value}"
    return TargetError(flag, expected=expected, found=_word(value), advice=row.loss)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return ",".join("=".join(item) if isinstance(item, tuple) else str(item) for item in value) or "none"
    return str(value).lower()
