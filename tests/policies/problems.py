"""A 24-block mixture of experts of 9 GiB on hand-made machines: large enough that placement matters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from planner.cost.evaluate import Evaluator
from planner.cost.model import CostModel
from planner.facts.machine import Cpu, DriverModel, Gpu, Machine, Os, Overflow, Ram
from planner.facts.model import Model, Role, Tensor
from planner.facts.workload import Workload
from planner.plans.decision import Decision
from planner.plans.plan import Candidate, Plan
from planner.plans.rule import Problem, Rule
from planner.search import plan
from planner.search.engine import Search, search
from planner.units import GIB, MIB
from policies import RULES
from tests.builders import make_gpu, make_machine, make_model

EXPERT_TENSOR_BYTES = 128 * MIB


def big_model(**changes: Any) -> Model:
    """24 blocks of three 128 MiB expert tensors and 8 MiB of attention each; 64 experts, 4 used."""

    def grown(tensor: Tensor) -> Tensor:
        if tensor.role is Role.EXPERT:
            return replace(tensor, shape=(1024, 1024, 64), n_bytes=EXPERT_TENSOR_BYTES)
        if tensor.role is Role.ATTENTION:
            return replace(tensor, n_bytes=2 * MIB)
        return tensor

    base = make_model(24, n_expert=64, n_expert_used=4, n_ctx_train=131072)
    tensors = tuple(grown(t) for t in base.tensors)
    return replace(base, tensors=tensors, file_bytes=sum(t.n_bytes for t in tensors), **changes)


def dense_model() -> Model:
    base = big_model()
    return replace(
        base,
        tensors=tuple(replace(t, role=Role.DENSE_FFN, name=t.name.replace("_exps", "")) for t in base.tensors),
        n_expert=0,
        n_expert_used=0,
    )


def card(free_gib: float, **changes: Any) -> Gpu:
    """A 24 GiB card of which ``free_gib`` are free."""
    used = 24 * GIB - int(free_gib * GIB)
    return make_gpu(total_bytes=24 * GIB, used_bytes=used, free_bytes=24 * GIB - used, **changes)


def machine(*gpus: Gpu, **changes: Any) -> Machine:
    cpu = Cpu("test", physical_cores=16, performance_cores=8, logical_cores=24, isa=("avx2",), numa_nodes=1)
    base = make_machine(*gpus, cpu=cpu, ram=Ram(64 * GIB, 60 * GIB, overflow=Overflow.SWAP))
    return replace(base, **changes)


def windows(*gpus: Gpu, **changes: Any) -> Machine:
    return machine(*(replace(g, driver_model=DriverModel.WDDM) for g in gpus), os=Os.WINDOWS, **changes)


def problem(found: Machine, model: Model | None = None, **work: Any) -> Problem:
    return Problem(found, model or big_model(), Workload(**work))


def solved(found: Machine, model: Model | None = None, **work: Any) -> Plan:
    return plan(problem(found, model, **work), RULES)


def decision(result: Plan, setting: str) -> Decision:
    return next(d for d in result.decisions if d.setting == setting)


def explained(rule: Rule, given: Problem) -> tuple[Decision, ...]:
    """What one rule says of the candidate the search takes."""
    pricing = Evaluator(CostModel(given.model, given.machine), given.workload)
    searched: Search = search(given, RULES, pricing)
    chosen: Candidate | None = searched.best()
    assert chosen is not None
    return rule.explain(given, searched.draft, chosen, searched.evaluate)
