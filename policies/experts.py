"""Which experts live on the GPU."""

from __future__ import annotations

from dataclasses import replace

from planner import units
from planner.cost.patterns import override_pattern
from planner.cost.tape import HOST
from planner.facts.model import Role
from planner.facts.reading import Source
from planner.plans.compare import versus
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.plan import Candidate, Caution, Verdict
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import Settings

DOC = RuleDoc(
    id="experts",
    title="As many expert layers on the GPU as fit: the smallest --n-cpu-moe, then single tensors",
    settings=("n_cpu_moe", "override_tensor"),
    what=(
        "--n-cpu-moe N keeps the routed experts of the first N blocks in host memory. For every ubatch and load "
        "mode that is considered the search takes the smallest N that keeps the headroom, and compares the "
        "results by the time of a turn. Then it tries to bring single expert tensors of the last block that "
        "stayed behind back to the GPU with -ot, and keeps that when the turn gains at least 1 %, unless the "
        "target places whole blocks only or an -ot is pinned. The flag is printed even when it is 0."
    ),
    why=(
        "Only n_expert_used of n_expert experts are read per token, so experts are the cheapest bytes to leave "
        "in RAM; every layer of them that stays on the GPU still saves its share of RAM time in decode and its "
        "transfer in prefill. Blocks are counted, not MoE layers: leading dense blocks count too. In "
        "ik_llama.cpp the same flag keeps the last blocks."
    ),
    numbers=(
        ("-ncmoe 48/36/28/24: 41.7/56.0/67.1/88.8 tok/s", "qwen3-30b-a3b on 12 GiB, llama.cpp b11434"),
        ("about 0.5 ms per token and layer of 360 MiB experts on 16 cores", "the same runs"),
    ),
    abstains="The file has no routed experts, or no GPU takes part.",
    references=(
        "common/common.h (b11312): one override per block, biases included",
        "ggml-org/llama.cpp#15077",
    ),
)


def _last_moe_block(problem: Problem) -> int:
    blocks = [t.layer for t in problem.model.tensors if t.role is Role.EXPERT and t.layer is not None]
    return max(blocks, default=-1)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Open ``n_cpu_moe`` at every block that holds experts; fixed to 0 for a dense model."""
    model = problem.model
    if not model.is_moe:
        note = "The file has no routed experts: a dense model is planned, layers instead of experts."
        return Proposal(domains=(("n_cpu_moe", (0,)),), cautions=(Caution("dense-model", note),))
    if not draft.values("devices")[0]:
        return Proposal(domains=(("n_cpu_moe", (0,)),))
    steps = {0} | {t.layer + 1 for t in model.tensors if t.role is Role.EXPERT and t.layer is not None}
    whole = () if problem.workload.target.takes_tensors else (("override_tensor", ((),)),)
    return Proposal(domains=(("n_cpu_moe", tuple(sorted(steps))), *whole))


def _headline(problem: Problem, chosen: Candidate, on_host: int) -> str:
    settings = chosen.settings
    if chosen.verdict is Verdict.PAGES:
        return _paged(problem, chosen)
    if not settings.devices:
        return "all experts are in RAM anyway: there is no GPU in use"
    if on_host == 0:
        return "every expert is on the GPU"
    if settings.n_cpu_moe > _last_moe_block(problem):
        return f"all experts in RAM ({units.size(on_host)}): not one layer of them fits beside the headroom"
    if settings.n_cpu_moe == 0:
        return f"only part of the first expert block is in RAM ({units.size(on_host)})"
    return f"experts of {_first(settings.n_cpu_moe)} in RAM, the rest on the GPU ({units.size(on_host)} in RAM)"


def _first(n: int) -> str:
    return "the first block" if n == 1 else f"the first {n} blocks"


def _paged(problem: Problem, chosen: Candidate) -> str:
    """Where the experts are that no GPU holds, when RAM holds but a part of them."""
    held, mapped = chosen.memory.host.resident
    disk = f"RAM holds {units.size(held)} of {units.size(mapped)}, the rest is read from disk"
    if not chosen.settings.devices:
        return f"no GPU is in use: {disk}"
    if chosen.settings.n_cpu_moe > _last_moe_block(problem):
        return f"not one layer of experts fits beside the headroom of the GPU: {disk}"
    return f"experts of {_first(chosen.settings.n_cpu_moe)} off the GPU: {disk}"


def _in_ram(problem: Problem, settings: Settings) -> int:
    """Bytes of routed experts in host memory: overrides first, then ``n_cpu_moe`` and layers on the CPU."""
    rules = [(override_pattern(pattern), target) for pattern, target in settings.override_tensor]
    first = problem.model.n_layer + 1 - settings.n_gpu_layers if settings.devices else problem.model.n_layer
    found = 0
    for tensor in problem.model.tensors:
        if tensor.role is Role.EXPERT and tensor.layer is not None:
            target = next((t for rule, t in rules if rule.search(tensor.name)), None)
            host = tensor.layer < max(settings.n_cpu_moe, first) if target is None else target == HOST
            found += tensor.n_bytes if host else 0
    return found


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The block count with its neighbours on both sides, and the tensor override if there is one."""
    settings, model, goal = chosen.settings, problem.model, problem.workload.goal
    if not model.is_moe:
        return ()
    steps = draft.values("n_cpu_moe")
    on_host = _in_ram(problem, settings)
    evidence = (
        Evidence("experts", model.n_expert, "experts", Source.REPORTED),
        Evidence("experts used per token", model.n_expert_used, "experts", Source.REPORTED),
        Evidence("all routed experts", model.expert_bytes, "bytes", Source.DERIVED),
        Evidence("routed experts off the GPU", on_host, "bytes", Source.DERIVED),
    )
    near = [n for n in (settings.n_cpu_moe - 1, settings.n_cpu_moe + 1) if n in steps]
    losers = tuple(versus(n, evaluate(replace(settings, n_cpu_moe=n, override_tensor=())), chosen, goal) for n in near)
    blocks = Decision(
        "experts",
        "n_cpu_moe",
        settings.n_cpu_moe,
        _headline(problem, chosen, on_host),
        Confidence.DERIVED,
        evidence,
        losers,
    )
    if not settings.override_tensor:
        return (blocks,)
    without = replace(settings, n_cpu_moe=settings.n_cpu_moe + 1, override_tensor=())
    rule = ",".join(f"{pattern}={target}" for pattern, target in settings.override_tensor)
    partial = Decision(
        "experts",
        "override_tensor",
        rule,
        f"part of block {settings.n_cpu_moe}'s experts still fits on the GPU",
        Confidence.DERIVED,
        evidence[-1:],
        (versus("whole blocks only", evaluate(without), chosen, goal),),
    )
    return (blocks, partial)


RULE = Rule(DOC, propose, explain)
