"""No text that a kernel, driver or program might hand over makes a parser fall over."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from probes import amd, cgroup, cpu, llama_devices, llama_help, llama_version, memory, mounts, swap, sysctl, text

PARSERS: tuple[Callable[[str], object], ...] = (
    amd.parse_slot, cgroup.parse_self, cgroup.parse_limit, cgroup.parse_cpu_max, cpu.parse_blocks,
    cpu.parse_allowed, llama_devices.parse, llama_help.parse, llama_version.parse, memory.parse_vm_stat,
    mounts.parse, swap.parse, sysctl.parse, text.clean, text.cpu_list, text.whole,
)  # fmt: skip
PIECES = st.sampled_from(
    ["MemTotal:", " kB", "0-", ",", ":", "/", " - ", "\n", "\t", "\x1b", "\x00", "max", "9" * 40, "-", "processor : ",
     "1", " MiB", " MiB free)", "  CUDA0: x (", "version: ", "(build ", "\\777", "é", "²", "Pages free:"]
)  # fmt: skip
HOSTILE = st.one_of(st.text(max_size=200), st.lists(PIECES, max_size=40).map("".join))


@pytest.mark.parametrize("parse", PARSERS, ids=lambda parse: f"{parse.__module__}.{parse.__name__}")
@settings(max_examples=150, deadline=None)
@given(data=HOSTILE)
def test_parsers_answer_anything(parse: Callable[[str], object], data: str) -> None:
    parse(data)


@settings(max_examples=150, deadline=None)
@given(data=HOSTILE)
def test_meminfo_refuses_with_a_reason(data: str) -> None:
    try:
        found = memory.parse_meminfo(data)
    except ValueError as e:
        assert "/proc/meminfo" in str(e)
    else:
        assert found.total_bytes > 0
