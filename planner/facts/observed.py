"""What was seen while a model ran: answers, samples of the machine, the engine's buffers, and what is kept of it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of an engine.

    Args:
        tokens: ids as the engine gave them; empty where it gives none (chat).
        prompt_n, predicted_n: tokens computed (a part that came from a cache is not in ``prompt_n``).
        prompt_s, predicted_s: the engine's own seconds for them.
        first_s: from the question to the first token, as the asker saw it; to the end where none had text.
        gaps_s: between tokens, as the asker saw them.
        draft_n, draft_accepted: of speculative decoding; None without it.
    """

    text: str
    tokens: tuple[int, ...]
    prompt_n: int
    prompt_s: float
    predicted_n: int
    predicted_s: float
    first_s: float
    gaps_s: tuple[float, ...] = ()
    draft_n: int | None = None
    draft_accepted: int | None = None

    @property
    def prefill_tps(self) -> float | None:
        return self.prompt_n / self.prompt_s if self.prompt_n > 0 and self.prompt_s > 0 else None

    @property
    def decode_tps(self) -> float | None:
        """None for fewer than two tokens: the first one belongs to the prompt."""
        return self.predicted_n / self.predicted_s if self.predicted_n > 1 and self.predicted_s > 0 else None


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One device at one moment; None is not known.

    Args:
        busy: share of the time with work on it, 0 to 1.
        shared_bytes: host memory that its driver holds for it (GTT; shared memory under WDDM).
    """

    device: str
    used_bytes: int | None = None
    busy: float | None = None
    shared_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class CpuTime:
    """CPU seconds since the machine started: of all CPUs, those not idle, and those of the engine and ours."""

    total_s: float
    busy_s: float
    own_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """The machine at one moment of a run.

    Args:
        at_s: monotonic seconds.
        rss_bytes: of the engine's process.
        major_faults: of the engine's process since it started: pages that came from a disk.
        cpu: None where it is not known.
    """

    at_s: float
    gpus: tuple[GpuSample, ...] = ()
    rss_bytes: int | None = None
    major_faults: int | None = None
    cpu: CpuTime | None = None


@dataclass(frozen=True, slots=True)
class Buffer:
    """One buffer as the engine logged it: ``kind`` is ``model``, ``context``, ``compute`` or ``output``.

    Args:
        device: as the engine names it (``CUDA0``, ``CPU``, ``CPU_Mapped``, ``CUDA_Host``).
    """

    device: str
    kind: str
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Placement:
    """What the engine says it did.

    Args:
        n_ctx: of one slot.
        offloaded: ``(layers on devices, all layers)``; None if it did not say.
        unpinned_bytes: host memory that could not be page-locked; None if all could, or it did not say.
    """

    buffers: tuple[Buffer, ...] = ()
    build: str | None = None
    n_ctx: int | None = None
    n_slots: int | None = None
    offloaded: tuple[int, int] | None = None
    unpinned_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Verified:
    """What verified runs of one family of models on this machine and build teach the next plan.

    Args:
        when: local date of the last, ``YYYY-MM-DD``.
        devices: of the settings that ran; the ratios hold for these alone.
        decode_ratio, prefill_ratio: observed rate over the predicted one, within bounds; None if never seen.
        decode_spread, prefill_spread: between a corrected rate and the ends of its band, as far as the runs agree;
            None if never seen.
        runs: how many runs the ratios come from; what taught no speed is none of them.
        bounded: True if a ratio was cut to the bounds.
        extra: bytes per device that were needed beyond the prediction.
        kept: ``(setting, value)`` in the words of ``--pin`` that this very question was verified with and that
            differ from the plan; empty if the plan was kept or the question is another one.
        exact: True if this very question (model, workload, limits) was verified.
        slower: True if the last run was slower than the prediction allows, so that it verified nothing.
        depth: tokens of the longest prompt that the last run answered; None if it did not say.
    """

    when: str
    devices: tuple[str, ...] = ()
    decode_ratio: float | None = None
    prefill_ratio: float | None = None
    decode_spread: float | None = None
    prefill_spread: float | None = None
    runs: int = 0
    bounded: bool = False
    extra: tuple[tuple[str, int], ...] = ()
    kept: tuple[tuple[str, str], ...] = ()
    exact: bool = False
    slower: bool = False
    depth: int | None = None
