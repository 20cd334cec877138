from __future__ import annotations

from planner.cost.streaming import cache_mib
from planner.facts.machine import Overflow, Ram
from planner.facts.reading import Source
from planner.plans.memory import HostMemory, Term
from planner.units import GIB, MIB
from tests.builders import make_model

MODEL = make_model()
"""Two of eight experts are used: a token's are a quarter of the bank."""


def host(experts: int, dense: int = 0, compute: int = 0, context: int = 0) -> HostMemory:
    def term(name: str, n_bytes: int) -> tuple[Term, ...]:
        return (Term(name, n_bytes, Source.DERIVED),)

    model = term("weights expert", experts) + term("weights attention", dense)
    return HostMemory(model, term("KV full", context), term("inputs", compute), term("prompt cache (-cram)", 8 * GIB))


def ram(available: int, overflow: Overflow = Overflow.KILL) -> Ram:
    return Ram(64 * GIB, available, overflow=overflow)


def test_it_is_what_everything_else_leaves() -> None:
    memory = host(60 * GIB, dense=2 * GIB, compute=512 * MIB, context=GIB)
    assert cache_mib(MODEL, ram(30 * GIB), memory) == 30 * 1024 * 8 // 10 - 2048 - 512 - 1024
    assert cache_mib(MODEL, ram(30 * GIB, Overflow.SWAP), memory) > cache_mib(MODEL, ram(30 * GIB), memory)


def test_it_is_at_most_all_experts() -> None:
    assert cache_mib(MODEL, ram(60 * GIB), host(4 * GIB)) == 4096


def test_it_is_off_where_one_tokens_experts_do_not_fit() -> None:
    memory = host(40 * GIB)
    assert cache_mib(MODEL, ram(12 * GIB), memory) == 0, "9.6 GiB for a cycle of 10"
    assert cache_mib(MODEL, ram(13 * GIB), memory) == 13 * 1024 * 8 // 10


def test_it_is_off_below_what_the_engine_takes() -> None:
    assert cache_mib(MODEL, ram(60 * GIB), host(1499 * MIB)) == 0
    assert cache_mib(MODEL, ram(60 * GIB), host(1500 * MIB)) == 1500


def test_tables_that_stay_on_disk_take_no_ram() -> None:
    memory = host(30 * GIB, dense=8 * GIB)
    lazy = HostMemory(memory.model, memory.context, memory.compute, memory.overhead, lazy_bytes=8 * GIB)
    assert cache_mib(MODEL, ram(30 * GIB), lazy) == cache_mib(MODEL, ram(30 * GIB), memory) + 8 * 1024


def test_without_a_figure_of_what_is_free_it_takes_the_total() -> None:
    assert cache_mib(MODEL, Ram(30 * GIB), host(60 * GIB)) == 30 * 1024 * 85 // 100
