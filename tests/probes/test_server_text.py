"""What llama-server b11549 logs and streams, parsed."""

from __future__ import annotations

from typing import Any

import pytest

from planner.facts.observed import Buffer
from planner.units import MIB
from probes import server_log
from probes.server_events import Reading
from probes.session import Question

LOG = (
    "0.00.093.857 I load_tensors:          CPU model buffer size =   805.07 MiB",
    "0.00.093.900 I load_tensors:   CPU_Mapped model buffer size =     1.50 MiB",
    "0.00.094.000 I load_tensors: offloaded 29/49 layers to GPU",
    "0.01.162.441 I llama_context:        CPU  output buffer size =     0.19 MiB",
    "0.01.162.640 I llama_kv_cache:      CUDA0 KV buffer size =   180.00 MiB",
    "0.01.162.641 I llama_memory_recurrent:      CUDA0 RS buffer size =    62.00 MiB",
    "llama_kv_cache:      RPC0[127.0.0.1:50052] KV buffer size =   10.00 MiB",
    "0.01.293.943 I sched_reserve:        CPU compute buffer size =    31.64 MiB",
    "ggml_cuda_host_malloc: failed to allocate 4548.00 MiB of pinned memory: out of memory",
    "0.00.1 I srv: 12 MiB buffer size",
)


def test_buffers_with_their_kind() -> None:
    found = server_log.parse(LOG)
    assert found.buffers == (
        Buffer("CPU", "model", round(805.07 * MIB)),
        Buffer("CPU_Mapped", "model", round(1.5 * MIB)),
        Buffer("CPU", "output", round(0.19 * MIB)),
        Buffer("CUDA0", "context", 180 * MIB),
        Buffer("CUDA0", "context", 62 * MIB),
        Buffer("RPC0[127.0.0.1:50052]", "context", 10 * MIB),
        Buffer("CPU", "compute", round(31.64 * MIB)),
    )
    assert (found.offloaded, found.unpinned_bytes) == ((29, 49), 4548 * MIB)


@pytest.mark.parametrize("line", ["", "x" * 20000, ": " * 5000, "a: b buffer size = 1e9 MiB", "buffer size = 1 MiB"])
def test_other_lines_are_passed_over(line: str) -> None:
    assert server_log.parse((line,)).buffers == ()


CHAT = Question("Why?", 16, chat=True)
EXACT = Question(tuple(range(256)), 128, exact=True)


def fed(*events: dict[str, Any], question: Question = CHAT) -> Reading:
    reading = Reading(10.0, question)
    for number, event in enumerate(events):
        reading.feed(event, 10.5 + 0.1 * number)
    return reading


TIMINGS = {"prompt_n": 12, "prompt_ms": 274.7, "predicted_n": 3, "predicted_ms": 175.7}


def test_a_completion() -> None:
    answer = fed(
        {"content": "a", "tokens": [5]},
        {"content": "", "tokens": [6]},
        {"content": "", "tokens": [], "timings": TIMINGS},
    ).answer()
    assert answer is not None
    assert (answer.text, answer.tokens, answer.prompt_n, answer.predicted_n) == ("a", (5, 6), 12, 3)
    assert answer.first_s == pytest.approx(0.5) and answer.gaps_s == pytest.approx((0.1,))
    assert answer.decode_tps == pytest.approx(3 / 0.1757)


def test_progress_is_no_token() -> None:
    """llama-server b11549 puts ``tokens: [0]`` into events of progress, two of them and more for a long prompt."""
    progress = {"content": "", "tokens": [0], "prompt_progress": {"total": 12, "processed": 0}}
    done = progress | {"prompt_progress": {"total": 12, "processed": 12}}
    reading = fed(progress, done, {"content": "a", "tokens": [5]}, {"content": "b", "tokens": [6], "timings": TIMINGS})
    answer = reading.answer()
    assert answer is not None and (answer.tokens, reading.processed) == ((5, 6), 12)
    assert answer.first_s == pytest.approx(0.7) and answer.gaps_s == pytest.approx((0.1,))


def test_an_answer_may_have_no_text() -> None:
    """A model that ends its answer at once; timings of progress alone, which a dying server leaves, are no answer."""
    progress = {"choices": [], "prompt_progress": {"processed": 12}, "timings": TIMINGS | {"predicted_n": 0}}
    assert fed(progress).answer() is None
    ended = {"choices": [{"delta": {}}], "timings": TIMINGS | {"predicted_n": 1, "predicted_ms": 0.001}}
    answer = fed(progress, ended).answer()
    assert answer is not None and (answer.text, answer.predicted_n, answer.decode_tps) == ("", 1, None)
    assert answer.first_s == pytest.approx(0.6) and answer.prefill_tps == pytest.approx(12 / 0.2747)


def test_nobody_answers_faster_than_the_answer_comes() -> None:
    told = TIMINGS | {"predicted_ms": 0.002}
    answer = fed(*({"content": "a", "tokens": [n]} for n in range(3)), {"content": "", "timings": told}).answer()
    assert answer is not None and answer.decode_tps == pytest.approx(3 / 0.2)


@pytest.mark.parametrize(
    ("question", "told_ms", "first_s", "prompt_s"),
    [
        (EXACT, 0.01, 4.0, 4.0),
        (EXACT, 1500.0, 4.0, 4.0),
        (EXACT, 1800.0, 4.0, 1.8),  # a busy machine, a prompt that goes to the cache
        (EXACT, 6.0, 0.4, 0.006),  # a fast one: the way of the question takes longer
        (EXACT, 0.0, 4.0, 0.0),  # no time was told
        (CHAT, 300.0, 1.3, 0.3),
        (CHAT, 0.01, 4.0, 4.0),
    ],
)
def test_nobody_computes_a_prompt_faster_than_its_first_token_comes(
    question: Question, told_ms: float, first_s: float, prompt_s: float
) -> None:
    reading = Reading(10.0, question)
    reading.feed({"content": "a", "tokens": [1]}, 10.0 + first_s)
    told = TIMINGS | {"prompt_n": 256, "prompt_ms": told_ms}
    reading.feed({"content": "", "timings": told}, 10.0 + first_s + 0.1)
    answer = reading.answer()
    assert answer is not None and answer.prompt_s == pytest.approx(prompt_s)


@pytest.mark.parametrize(
    ("question", "counts", "words"),
    [
        (EXACT, {"prompt_n": 10**9}, "it counts 1,000,000,000 tokens of a prompt that has 256 at most"),
        (EXACT, {"predicted_n": 10**9}, "it counts 1,000,000,000 tokens of answer, 128 were asked for"),
        (CHAT, {"prompt_n": 10**9}, "it counts 1,000,000,000 tokens of a prompt that has 16,388 at most"),
        (CHAT, {"predicted_n": 33}, "it counts 33 tokens of answer, 16 were asked for"),
        (EXACT, {"prompt_n": 257, "predicted_n": 129}, ""),
        (CHAT, {"prompt_n": 900, "predicted_n": 17}, ""),
    ],
)
def test_counts_beyond_the_question_are_no_answer(question: Question, counts: dict[str, int], words: str) -> None:
    assert Reading(10.0, question).excess({"content": "", "timings": TIMINGS | counts}) == words


@pytest.mark.parametrize("ms", [1e-300, -1.0, 1e300, 10**400, float("nan"), float("inf"), True, "1"])
def test_times_that_cannot_be_are_no_answer(ms: object) -> None:
    assert fed({"content": "a"}, {"content": "", "timings": TIMINGS | {"predicted_ms": ms}}).answer() is None


def test_a_chat_with_thoughts() -> None:
    progress = {"choices": [{"delta": {"content": None}}], "prompt_progress": {"processed": 37, "total": 37}}
    reading = fed(
        progress,
        {"choices": [{"delta": {"reasoning_content": "hm "}}]},
        {"choices": [{"delta": {"content": "yes"}}]},
        {"choices": [], "timings": TIMINGS | {"draft_n": 4, "draft_n_accepted": 3}},
    )
    answer = reading.answer()
    assert reading.processed == 37 and answer is not None
    assert (answer.text, answer.draft_n, answer.draft_accepted) == ("hm yes", 4, 3)
    assert answer.first_s == pytest.approx(0.6)


@pytest.mark.parametrize(
    "event",
    [
        {"timings": {"prompt_n": -1}},
        {"timings": TIMINGS | {"prompt_ms": "soon"}},
        {"timings": TIMINGS | {"predicted_ms": float("inf")}},
        {"timings": []},
        {"choices": [3], "content": 7, "tokens": "x"},
        {"prompt_progress": {"processed": "all"}},
    ],
)
def test_nonsense_is_no_answer(event: dict[str, Any]) -> None:
    assert fed({"content": "a", "tokens": [1]}, event).answer() is None
