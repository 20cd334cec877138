"""How several devices share the model."""

from __future__ import annotations

from planner import units
from planner.facts.reading import Source
from planner.plans.decision import Alternative, Confidence, Decision, Evidence, Fate, RuleDoc
from planner.plans.plan import Candidate
from planner.plans.rule import Draft, Evaluate, Problem, Proposal, Rule
from planner.plans.settings import SplitMode

DOC = RuleDoc(
    id="split",
    title="Whole layers per device: all equally empty, or more on the faster where that is faster; never rows",
    settings=("split_mode", "tensor_split"),
    what=(
        "With several devices llama.cpp's own split mode, layer, stays, and -ts names the layers of each. The counts "
        "are found from bytes: weights after the experts moved to RAM, the cache of every layer, and what each "
        "device needs besides (compute buffer, driver context, headroom). Of cards of different kinds the faster then "
        "takes layers from the slower as long as the turn gets shorter and the headroom stays, and two that hold all "
        "experts are tried in both orders."
    ),
    why=(
        "llama.cpp alone splits by free memory before --n-cpu-moe takes the experts away: the first device then "
        "holds stripped blocks and the last one full ones, and overflows. Row split sends activations over the link "
        "in every multiply; with experts that is several times slower. Tensor split has roundings and buffers that "
        "are not predicted here, and no expert cache."
    ),
    numbers=(
        ("row 6.5, layer 39 to 49 tok/s", "Qwen3-Next-80B-A3B on RTX 5070 Ti + 5060 Ti, public report"),
        ("54 GB asked of a 24 GB card by a split before overrides", "GLM-5.2 on 4x3090, public report"),
        ("tensor 5,446, layer 3,822 tok/s prefill; decode equal", "gpt-oss-120b on 4 x RTX 4090, public report"),
    ),
    abstains="Fewer than two devices take part.",
    references=("ggml-org/llama.cpp#15136, #15263: --n-cpu-moe and -ts", "src/llama-model.cpp (b11434): load_tensors"),
)


def propose(problem: Problem, draft: Draft, evaluate: Evaluate) -> Proposal:
    """Layers; the search balances the counts for every placement."""
    return Proposal(domains=(("split_mode", (SplitMode.LAYER,)),))


def explain(problem: Problem, draft: Draft, chosen: Candidate, evaluate: Evaluate) -> tuple[Decision, ...]:
    """The mode with the modes that lost, and the layers of each device."""
    settings = chosen.settings
    if len(settings.devices) < 2:
        return ()
    free = tuple(
        Evidence(f"{d.id} stays free", d.headroom_bytes, "bytes", Source.DERIVED) for d in chosen.memory.devices
    )
    losers = (
        Alternative("row", Fate.SLOWER, None, "6.5 against 39 to 49 tok/s in a public report of two cards"),
        Alternative("tensor", Fate.UNSUPPORTED, None, "its buffers are not predicted, so no headroom can be promised"),
    )
    mode = Decision(
        "split", "split_mode", settings.split_mode.value, "whole layers: one activation crosses per device",
        Confidence.DERIVED, free, losers,
    )  # fmt: skip
    shares = ",".join(f"{share:g}" for share in settings.tensor_split)
    fullest = min(chosen.memory.devices, key=lambda d: d.headroom_bytes)
    free_there = units.mib(fullest.headroom_bytes)
    headline = f"by bytes after the experts moved, then by speed; {fullest.id} is the fullest with {free_there} free"
    counts = Decision("split", "tensor_split", shares, headline, Confidence.DERIVED, free)
    return (mode, counts)


RULE = Rule(DOC, propose, explain)
