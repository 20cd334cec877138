"""Texts are those of llama-server b11549 (CPU) and of ggml-cuda b11434."""

from __future__ import annotations

import signal
import sys

import pytest

from probes.engine_cause import Kind, cause, meaningful

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="exit status of signals")

NO_ROOM = (
    "0.00.174.389 E ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 844178688",
    "0.00.174.390 E ggml_backend_buft_alloc_buffer_n_default: failed to allocate CPU buffer of size 844178688",
    "0.00.193.241 E llama_model_load: error loading model: unable to allocate CPU buffer",
    "0.00.193.301 I srv    operator(): operator(): cleaning up before exit...",
    "0.00.194.548 E srv  llama_server: exiting due to model loading error",
)
CUDA_FULL = (
    "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 9120.00 MiB on device 0: cudaMalloc failed: out of memory",
    "llama_model_load: error loading model: unable to allocate CUDA0 buffer",
)
CUT = (
    "E llama_model_load: error loading model: tensor 'blk.0.x' data is not within the file bounds, model is corrupted",
)
BOUND = ("0.00.005.966 E srv  start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 18125",)
UNPINNED = ("ggml_cuda_host_malloc: failed to allocate 4548.00 MiB of pinned memory: out of memory",)


@pytest.mark.parametrize(
    ("lines", "kind", "text"),
    [
        (NO_ROOM, Kind.MEMORY, "memory for a buffer of CPU could not be taken"),
        (CUDA_FULL, Kind.MEMORY, "GPU memory ran out"),
        (UNPINNED, Kind.MEMORY, "page-locked memory could not be taken (4548.00 MiB)"),
        (("error: invalid argument: --moe-cache-mib",), Kind.FLAG, "this build does not know --moe-cache-mib"),
        (BOUND, Kind.PORT, "port 18125 is taken"),
        (CUT, Kind.FILE, "the model file is cut short or was replaced"),
        (
            ("x: error loading model: unknown model architecture: 'new'",),
            Kind.FILE,
            "does not know the architecture new",
        ),
        (("terminate called", "  what():  std::bad_alloc"), Kind.MEMORY, "memory ran out"),
        (("ggml.c:1: GGML_ASSERT(a == b) failed",), Kind.OTHER, "an assertion of llama.cpp failed: a == b"),
        (("nothing to see",), Kind.OTHER, "it ended with status 1"),
        ((), Kind.OTHER, "it ended with status 1"),
    ],
)
def test_what_it_said_tells_the_cause(lines: tuple[str, ...], kind: Kind, text: str) -> None:
    found = cause(1, lines)
    assert found.kind is kind and text in found.text


@pytest.mark.parametrize("name", ["SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"])
def test_who_ended_it_counts_more_than_an_old_warning(name: str) -> None:
    found = cause(-getattr(signal, name), UNPINNED)
    assert (found.kind, found.text) == (Kind.KILLED, f"it was ended from outside by {name}")


def test_the_kernel_kills_for_memory() -> None:
    assert cause(-9, (), oom_kills=1).kind is Kind.MEMORY


def test_a_mapped_file_that_is_gone_and_a_crash() -> None:
    assert "mapped model file" in cause(-signal.SIGBUS, ()).text
    assert cause(-signal.SIGSEGV, ()).text == "it crashed (SIGSEGV)"


def test_the_last_lines_that_mean_something() -> None:
    shown = meaningful(("0.00.1 I loading", "\x1b[31mred error\x07", *NO_ROOM))
    assert shown[-1] == "llama_model_load: error loading model: unable to allocate CPU buffer"
    assert len(shown) == 4 and all(line.isprintable() for line in shown)
    assert meaningful(("one", "two")) == ("one", "two")
    assert meaningful(()) == ()
