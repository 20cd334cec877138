"""What every caution and every verdict means and what to do about it: for ``explain`` and for the docs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Meaning:
    """A code's manual: what it says, and the next step."""

    code: str
    says: str
    do: str


CAUTIONS: Final = (
    Meaning(
        "rates-assumed",
        "The speed rests on rates that nobody measured here: they are taken from the kind of device. It may be off by "
        "a factor of two, memory is not affected.",
        "moeplan --auto or moeplan probe MODEL measures; what is still assumed then needs a llama.cpp (--llama) that "
        "times a layer of the model; moeplan run holds the speed against the engine.",
    ),
    Meaning(
        "measured-busy",
        "Something else used the machine while it was measured, so a rate is too low.",
        "moeplan probe MODEL --refresh when the machine is quiet.",
    ),
    Meaning(
        "layer-unmeasured",
        "A layer of the model could not be timed, for the reason in the message: speed is estimated from rates of the "
        "machine instead.",
        "moeplan probe MODEL --refresh tries again, once the reason is gone.",
    ),
    Meaning(
        "pages",
        "The weights that no GPU holds are more than the RAM beside them: part of the experts is read from disk while "
        "the model answers, which is slow and as fast as the disk.",
        "Close other programs, take a smaller quantisation, or a shorter --ctx to put more on the GPU.",
    ),
    Meaning(
        "build-not-mirrored",
        "Memory is counted as a range of llama.cpp builds counts it, and this build lies outside.",
        "--auto asks the engine itself (llama-fit-params); else leave more --headroom.",
    ),
    Meaning(
        "attention-assumed",
        "The cache rules of this architecture are not known: its cache is counted as plain attention.",
        "--auto asks the engine itself; moeplan run watches the memory.",
    ),
    Meaning(
        "model-note",
        "Something in the file is unusual, as the message says.",
        "Look at the file with moeplan inspect.",
    ),
    Meaning(
        "dense-model",
        "The file has no routed experts: whole layers are placed, and no expert flag helps.",
        "Nothing; for a mixture-of-experts model check that it is the file you meant.",
    ),
    Meaning(
        "device-left-out",
        "A device of this machine does not take part, as the message says.",
        "--pin devices=A,B takes devices of your own choice.",
    ),
    Meaning(
        "cores-unknown",
        "The number of CPU cores could not be read, so llama.cpp chooses the threads.",
        "--pin threads=N sets them.",
    ),
    Meaning(
        "lossy-kv",
        "The KV cache is quantised, because nothing else fits: the output differs slightly from the full model's.",
        "A shorter --ctx keeps f16; --kv f16 insists on it.",
    ),
    Meaning(
        "kv-pair-without-kernel",
        "The build has no GPU kernel for this pair of cache types: attention is slower.",
        "--kv f16 or a pair that the message names; or a build with GGML_CUDA_FA_ALL_QUANTS.",
    ),
    Meaning(
        "headroom-floor",
        "--headroom asks for less than Windows leaves alone: below 1,024 MiB runs collapsed at random under WDDM.",
        "Nothing: 1,024 MiB are kept.",
    ),
    Meaning(
        "context-beyond-training",
        "The context is longer than the model was trained for. llama-server uses no more than that.",
        "A --ctx up to the training context, which moeplan inspect shows.",
    ),
    Meaning(
        "context-shorter-than-turn",
        "Prompt and answer of a turn do not fit into the context.",
        "A longer --ctx, or --prompt-tokens and --answer-tokens as your turns really are.",
    ),
    Meaning(
        "oracle-failed",
        "llama.cpp could not be asked whether it counts memory the same way. The plan stands unconfirmed.",
        "See the reason in the message; moeplan run confirms by starting the server.",
    ),
    Meaning(
        "oracle-disagrees",
        "llama.cpp itself counts more memory than was predicted. The difference is set aside, and the plan "
        "is decided again.",
        "Nothing; a report with both numbers helps.",
    ),
    Meaning(
        "engine-unknown",
        "No llama.cpp was found: flags are spelled for the newest build that was checked.",
        "--llama FOLDER names one, --target bNNNNN its build.",
    ),
    Meaning(
        "engine-embedded",
        "Only llama-cpp-python was found, which has no llama-server: flags are spelled for the newest build that was "
        "checked.",
        "Get llama.cpp and name it with --llama FOLDER, or its build with --target bNNNNN.",
    ),
    Meaning(
        "engine-newer",
        "llama.cpp is newer than the builds whose flags were checked, and its list of flags is not known.",
        "Run moeplan on the machine itself, where it reads the list; or start the command and see.",
    ),
    Meaning(
        "flags-left-out",
        "The build lacks a flag without which the plan still holds: it is not in the command.",
        "A newer llama.cpp, if what the message names matters to you.",
    ),
    Meaning(
        "target-assumed",
        "The flags are for an engine other than llama.cpp, while memory and speed are llama.cpp's.",
        "Read speeds as a comparison; leave more --headroom.",
    ),
)


VERDICTS: Final = (
    Meaning(
        "verified",
        "The model answered, and no rate was below the band that was predicted. A sentence says if no prompt past "
        "8,192 tokens was looked at: longer ones may not hold.",
        "Nothing; moeplan run PLAN.json starts what was verified.",
    ),
    Meaning(
        "slower",
        "The model answered, but prefill or decode was below the band that was predicted, on a steady machine. "
        "The next plan takes the rate over.",
        "Plan again; moeplan probe MODEL --refresh where the machine has changed.",
    ),
    Meaning(
        "inconclusive",
        "It was slower than predicted, but others used the CPUs or rates of the same settings disagreed, so it says "
        "nothing of the plan, and no speed is learned. In JSON: verdict slower with steady false.",
        "moeplan verify again when the machine is quiet.",
    ),
    Meaning(
        "collapsed",
        "The system began to page behind the engine's back, and no safer settings were left to step back to.",
        "More --headroom, a shorter --ctx, or close what else uses the memory.",
    ),
    Meaning(
        "failed",
        "There was no answer that could be timed; the reason and the engine's last lines say why.",
        "See the reason; nothing was learned.",
    ),
)


def meaning_of(code: str) -> Meaning | None:
    """The manual of a code, or None."""
    return next((item for item in (*CAUTIONS, *VERDICTS) if item.code == code), None)


def page(item: Meaning) -> str:
    """The manual on a terminal."""
    kind = "verdict" if item in VERDICTS else "caution"
    return f"{kind} {item.code}\n\nWhat\n{item.says}\n\nWhat to do\n{item.do}\n"


def markdown() -> str:
    """All of them as a page of the docs."""
    lines = ["# Cautions", "", "What stands in brackets behind a caution, as `moeplan explain CODE` prints it.", ""]
    lines += [*_table("code", CAUTIONS), "", "## Verdicts", "", "What `run` and `verify` begin their result with.", ""]
    return "\n".join([*lines, *_table("verdict", VERDICTS)]) + "\n"


def _table(name: str, items: tuple[Meaning, ...]) -> list[str]:
    head = [f"| {name} | means | what to do |", "|---|---|---|"]
    return [*head, *(f"| `{item.code}` | {item.says} | {item.do} |" for item in items)]
