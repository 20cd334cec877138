"""Records which experts a model selects on a text, by one of two ways; the caller says what it costs first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from planner.errors import EMBEDDED, CaptureError
from planner.facts.model import Model
from planner.facts.routing import Routing
from planner.files import bytes_of
from planner.gguf.cut_folder import base_folder, cut_folder
from planner.gguf.names import printable
from planner.routing.load import load
from probes import llama_find, routing_callback, routing_imatrix
from probes.routing_callback import Job, Step

if TYPE_CHECKING:
    from probes.host import Host

CHUNKS: Final = (512, 256, 128, 64, 32)
"""Tokens per piece of text, llama-imatrix's default first; it wants two of them."""
BYTES_PER_TOKEN: Final = 6
"""No common vocabulary takes more bytes of prose per token."""
USUAL_BYTES: Final = 4.4
MOST_TEXT_BYTES: Final = 64 << 20
TIMEOUT_S: Final = 6 * 3600.0


class Way(StrEnum):
    """How selections are seen."""

    AUTO = "auto"
    CALLBACK = "callback"
    """libllama's scheduler calls back at every router: real selections in order, prefill and decode apart."""
    IMATRIX = "imatrix"
    """The user's llama-imatrix counts them: no order, prefill only."""


@dataclass(frozen=True, slots=True)
class Capture:
    """A capture that could be run.

    Args:
        engine: what runs, for people.
        program: llama-imatrix, or a libllama.
        job: without its output file; it ends with the text, however many pieces it allows.
        prompt_tokens: about how many tokens of the text will be read.
    """

    way: Way
    engine: str
    program: str
    job: Job
    text_name: str
    prompt_tokens: int


def prepare(
    host: Host, model: Model, llama: str | None, way: Way, text: str, tokens: int, answer: int, threads: int
) -> Capture:
    """What would run.

    Args:
        llama: llama.cpp's folder or program, as the user named it.
        text: a file.
        tokens: of the text that are read at most.
        answer: tokens that the model then writes by itself (with a callback).

    Raises:
        CaptureError: no engine that can, a model that is not local, too short a text, or too many tokens.
        EngineError: a llama.cpp was named and is not there.
    """
    if "://" in model.path:
        raise CaptureError(printable(model.path), found="a model that is not on this computer", advice="download it")
    size = len(bytes_of(text, CaptureError, MOST_TEXT_BYTES))
    chunk = next((n for n in CHUNKS if 2 * n * BYTES_PER_TOKEN <= size and n <= max(tokens // 2, CHUNKS[-1])), None)
    if chunk is None:
        least = 2 * CHUNKS[-1] * BYTES_PER_TOKEN
        raise CaptureError(printable(text), expected=f"a text of at least {least} bytes", found=f"{size} bytes")
    way, program, engine = _engine(host, llama, way)
    about = max(int(min(tokens, size / USUAL_BYTES)) // chunk, 2) * chunk
    answer = answer if way is Way.CALLBACK else 0
    if way is Way.CALLBACK:
        _fits(model, max(min(tokens, size), answer))
    job = Job(model.path, text, chunk, max(tokens // chunk, 2), answer, threads, "")
    return Capture(way, engine, program, job, printable(text), about)


def _fits(model: Model, tokens: int) -> None:
    """Whether a recording of so many tokens can be read again; raises CaptureError."""
    from planner.routing.shape import shape_of
    from planner.routing.stored import MOST_SELECTIONS

    shape = shape_of(model)
    most = MOST_SELECTIONS // (len(shape.layers) * max(shape.n_used, 1))
    if tokens > most:
        expected = f"at most {most} tokens, {MOST_SELECTIONS} selections"
        advice = "name fewer with --tokens, or count without an order: --capture imatrix"
        raise CaptureError("--tokens", expected=expected, found=str(tokens), advice=advice)


def _engine(host: Host, llama: str | None, way: Way) -> tuple[Way, str, str]:
    """The way that is possible, its program, and words for it."""
    place = llama_find.find(host, llama)
    if place is None:
        raise CaptureError(
            "routing",
            expected="a llama.cpp",
            found="none: not on PATH, and no llama-cpp-python",
            advice=f"name a folder of it with --llama, or {EMBEDDED}",
        )
    name = printable(place.server) if place.server else "llama-cpp-python"
    library, program = routing_callback.library(host, place), routing_imatrix.program(host, place)
    if way is not Way.IMATRIX and library is not None:
        return Way.CALLBACK, library, f"the libllama of {name}"
    if way is not Way.CALLBACK and program is not None:
        return Way.IMATRIX, program, printable(program)
    wanted = {Way.CALLBACK: "a libllama", Way.IMATRIX: "llama-imatrix", Way.AUTO: "a libllama or llama-imatrix"}
    raise CaptureError(name, expected=f"{wanted[way]} beside it", found="none")


def run(host: Host, model: Model, capture: Capture, step: Step) -> Routing:
    """Record.

    Raises:
        CaptureError: the engine failed, with what it said.
    """
    with cut_folder(base_folder()) as folder:
        out = f"{folder}/routing.npz" if capture.way is Way.CALLBACK else f"{folder}/routing.gguf"
        job = replace(capture.job, out=out)
        if capture.way is Way.CALLBACK:
            problem = routing_callback.capture(host, capture.program, job, step, TIMEOUT_S)
        else:
            about = capture.prompt_tokens
            problem = routing_imatrix.capture(host, capture.program, job, step, TIMEOUT_S, about)
        if problem:
            raise CaptureError(capture.engine, expected="selections", found=problem)
        found = load(out, model)
    read = found.prefill.n_tokens if found.prefill else 0
    how = "eval callback" if capture.way is Way.CALLBACK else "llama-imatrix"
    method = f"{how}, {read:,} tokens in pieces of {job.chunk}" + (f", {job.answer} answered" if job.answer else "")
    return replace(found, source=capture.engine, method=method, fingerprint=model.fingerprint, text=capture.text_name)
