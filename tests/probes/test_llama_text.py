"""What llama.cpp programs print: versions, options, devices."""

from __future__ import annotations

import pytest

from planner.facts.machine import Backend
from probes import llama_devices, llama_help, llama_kv, llama_version
from probes.llama_devices import Listed

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "build"),
    [
        ("version: 0.6.0-dev (build 11549, commit unknown)\nbuilt with GNU 12.2.0\n", 11549),
        ("ggml_cuda_init: found 1\nversion: 8123 (abc1234)\nbuilt with cc\n", 8123),
        ("version: 0 (unknown)\n", None),
        ("version: 0.5.0 (build 1, commit 0c1e570)\n", None),
        ("GNU bash, version 5.2.15(1)-release\n", None),
        ("", None),
    ],
)
def test_version(text: str, build: int | None) -> None:
    assert llama_version.parse(text) == build


def test_version_without_a_number_is_still_an_answer() -> None:
    assert llama_version.answers("version: 0 (unknown)\n")
    assert not llama_version.answers("version 5.2\n")


HELP = """
-m,    --model FNAME                    model path (use -hf for a download)
-kvo,  --kv-offload, -nkvo, --no-kv-offload
                                        whether to offload, see --other
--log-colors [on|off|auto]              colors
-ncmoe, --n-cpu-moe N                   keep experts
       --old-style N                    an indented option
"""


def test_help() -> None:
    assert llama_help.parse(HELP) == (
        "--kv-offload", "--log-colors", "--model", "--n-cpu-moe", "--no-kv-offload", "--old-style",
        "-kvo", "-m", "-ncmoe", "-nkvo",
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "no options here\n", "\x1b[31m-\x00\n--\n---x\n- y\n"])
def test_help_without_options(text: str) -> None:
    assert llama_help.parse(text) == ()


def test_fork_is_recognised() -> None:
    assert llama_help.is_ik(("--model", "-fmoe", "-rtr"))
    assert not llama_help.is_ik(("--model", "--fit", "--n-cpu-moe"))


DEVICES = """ggml_cuda_init: found 2 CUDA devices:
Available devices:
  CUDA0: NVIDIA GeForce RTX 4080 SUPER (16375 MiB, 15061 MiB free)
  Vulkan1: AMD Radeon (RADV (x)) (8 MiB, 4 MiB free)
  RPC[127.0.0.1:50052]: RPC[127.0.0.1:50052] (100 MiB, 90 MiB free)
  BLAS: Accelerate (0 MiB, 0 MiB free)
  bad\x1bid: x (1 MiB, 1 MiB free)
"""


def test_devices() -> None:
    first, second, third, fourth = llama_devices.parse(DEVICES)
    assert first == Listed("CUDA0", "NVIDIA GeForce RTX 4080 SUPER", 16375 * MIB, 15061 * MIB)
    assert (second.name, second.backend) == ("AMD Radeon (RADV (x))", Backend.VULKAN)
    assert (third.backend, fourth.backend, fourth.total_bytes) == (Backend.RPC, None, 0)
    assert llama_devices.parse("Available devices:\n  (none)\n") == ()


@pytest.mark.parametrize("data", [None, {}, {"devices": 1}, {"devices": [["a", "b"]]}, {"devices": [["a", "b", "c"]]}])
def test_damaged_cache_counts_as_none(data: dict[str, object] | None) -> None:
    assert llama_devices.parse_kept(data) == ()


def test_kv_pairs_follow_build_and_backend() -> None:
    assert len(llama_kv.pairs(11549, ("cuda", "rpc"))) == 64
    assert "q8_0:q4_0" in llama_kv.pairs(11312, ("cuda",))
    assert llama_kv.pairs(9000, ("cuda",)) == ("f16:f16", "q4_0:q4_0", "q8_0:q8_0")
    assert llama_kv.pairs(None, ("rocm",)) == llama_kv.pairs(9000, ("cuda",))
    assert "bf16:f16" not in llama_kv.pairs(11549, ("vulkan",))
    assert "q8_0:q4_0" not in llama_kv.pairs(11549, ("cuda", "metal"))
    assert "q8_0:q8_0" in llama_kv.pairs(11549, ("cuda", "metal"))
    assert llama_kv.pairs(11549, ("cpu", "rpc")) == ()
