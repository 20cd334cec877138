"""What a check of a user's flags may look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from emit.flag_parse import ParsedFlags
from planner.facts.machine import Gpu, Machine
from planner.facts.model import Model, Role
from planner.plans.memory import Memory
from planner.plans.plan import Lint, Plan
from planner.plans.settings import Settings, Tool

QUANTISED_KV = frozenset({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})


@dataclass(frozen=True, slots=True)
class Case:
    """The flags as parsed, what they are for, and what they cost."""

    parsed: ParsedFlags
    plan: Plan

    @property
    def settings(self) -> Settings:
        return self.parsed.settings

    @property
    def model(self) -> Model:
        return self.plan.model

    @property
    def machine(self) -> Machine:
        return self.plan.machine

    @property
    def memory(self) -> Memory:
        return self.plan.chosen.memory

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The devices in use, in order."""
        known = {gpu.id: gpu for gpu in self.machine.gpus}
        return tuple(known[device] for device in self.settings.devices)

    @property
    def experts_on_host(self) -> bool:
        """True if some routed experts stay in host memory beside a device."""
        s = self.settings
        overridden = any(buffer == "CPU" for _, buffer in s.override_tensor)
        return self.model.is_moe and bool(s.n_cpu_moe or overridden or s.n_gpu_layers <= self.model.n_layer)

    @property
    def nearest(self) -> Settings | None:
        """What the same answer names as the nearest plan that fits; None where there is none, or for other tools."""
        refusal = self.plan.refusal
        if refusal is None or refusal.nearest is None or self.parsed.tool is not Tool.SERVER:
            return None
        return refusal.nearest.settings

    def typed(self, setting: str, default: str) -> str:
        """The flag as the user wrote it, or how it is usually written."""
        found = self.parsed.find(setting)
        return found[0] if found else default

    def expert_bytes(self) -> dict[int, int]:
        """Routed expert bytes by block."""
        found: dict[int, int] = {}
        for tensor in self.model.tensors:
            if tensor.role is Role.EXPERT and tensor.layer is not None:
                found[tensor.layer] = found.get(tensor.layer, 0) + tensor.n_bytes
        return found


Check = Callable[[Case], Iterator[Lint]]
