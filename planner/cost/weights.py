"""Weight bytes per device: exact from the file, by role, from prefix sums over the blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import accumulate
from typing import Final

from planner.cost.layout import Span
from planner.cost.patterns import override_pattern
from planner.cost.tape import HOST
from planner.facts.model import Model, Role, Tensor
from planner.facts.reading import Source
from planner.plans.memory import Term
from planner.units import count

EXPERT_NAME: Final = re.compile(r"blk\.\d+\.ffn_(up|down|gate|gate_up)_(ch|)exps")
"""What ``--n-cpu-moe`` keeps on the host: biases and scales, too (common/common.h:1198-1217, b11312)."""

REPACKED_TYPES: Final = frozenset(("Q4_0", "Q4_K", "IQ4_NL", "MXFP4"))
"""Types with an interleaved CPU layout under AVX2 (``ggml_repack_get_optimal_repack_type``,
ggml/src/ggml-cpu/repack.cpp, b11434); NEON and AVX-512 add some."""

LAZY_MIN_BYTES: Final = 4 << 30
"""Lookup tables above this are read from disk row by row (``lazy_read::add``, src/llama-model-loader.cpp, b11434)."""

_OUTPUT_NAME: Final = re.compile(r"(output|cls|dense_|hc_head|altup|fc|d2t)")
"""Tensors outside the blocks that llama.cpp places with the output layer (src/llama-arch.cpp, b11434);
the others outside the blocks go with block 0."""


_HEAD_FIRST_ARCHS: Final = frozenset(("gemma3n", "gemma4"))
"""Architectures that create a tied head before the embedding, so that the embedding never finds it and is always a
second tensor (src/models/gemma3n.cpp, gemma4.cpp, b11434)."""


@dataclass(slots=True)
class _Bytes:
    """Bytes per block of one role, then their prefix sums."""

    dense: list[int]
    expert: list[int]


@dataclass(slots=True)
class Placed:
    """Where every weight of some settings is.

    Args:
        by_role: ``(device, role) → bytes``.
        repackable: bytes on the host that the CPU backend would rather hold in its own layout.
        lazy: bytes of lookup tables that are read from disk as rows are used.
    """

    by_role: dict[tuple[str, Role], int] = field(default_factory=dict)
    repackable: int = 0
    lazy: int = 0
    _terms: dict[str, tuple[Term, ...]] = field(default_factory=dict)

    def add(self, device: str, role: Role, n_bytes: int) -> None:
        if n_bytes:
            self.by_role[device, role] = self.by_role.get((device, role), 0) + n_bytes

    def total(self, device: str) -> int:
        return sum(n for (d, _), n in self.by_role.items() if d == device)

    def terms(self, device: str) -> tuple[Term, ...]:
        """One term per role on the device, largest first."""
        if device not in self._terms:
            found = sorted(((n, role) for (d, role), n in self.by_role.items() if d == device), reverse=True)
            self._terms[device] = tuple(
                Term(f"weights {role}", n, Source.DERIVED, f"{count(n)} B of {role} tensors in the file")
                for n, role in found
            )
        return self._terms[device]


class WeightTable:
    """All tensors of a model under one list of overrides, ready to be placed.

    Args:
        overrides: ``(regex, device)``, searched in order, first match wins (``create_tensor`` in
            src/llama-model-loader.cpp, b11434), before ``n_cpu_moe``.
        nextn: load multi-token-prediction blocks; llama.cpp skips them unless MTP runs.
    """

    def __init__(self, model: Model, overrides: tuple[tuple[str, str], ...] = (), *, nextn: bool = False) -> None:
        self.model = model
        self.tied = not model.has_output
        self._head_first = model.arch in _HEAD_FIRST_ARCHS
        self._rules = tuple((override_pattern(pattern), device) for pattern, device in overrides)
        self._roles: dict[Role, _Bytes] = {}
        self.overridden: dict[tuple[int, str], int] = {}
        """Expert bytes that an override decides, by ``(block, device)``."""
        self._fixed: dict[tuple[str, Role], int] = {}
        self._input: dict[Role, int] = {}
        self._output: dict[Role, int] = {}
        self._embedding = 0
        self._repack = _Bytes([0] * model.n_layer, [0] * model.n_layer)
        self._lazy = 0
        self._forced: dict[int, list[tuple[str, str]]] = {}
        self._movable: dict[int, list[str]] = {}
        for tensor in model.tensors:
            if nextn or tensor.layer is None or not model.layers[tensor.layer].nextn:
                self._take(tensor)
        for sums in (*self._roles.values(), self._repack):
            sums.dense, sums.expert = _prefix(sums.dense), _prefix(sums.expert)

    def _take(self, tensor: Tensor) -> None:
        outside = tensor.layer is None
        if outside and tensor.role is Role.LOOKUP and tensor.n_bytes > LAZY_MIN_BYTES:
            self._lazy += tensor.n_bytes
            return
        if tensor.name == "token_embd.weight":
            self._embedding = tensor.n_bytes
        device = self._overridden(tensor.name)
        if device is not None:
            self._override(tensor, device)
        elif outside and tensor.role in (Role.EMBEDDING, Role.LOOKUP):
            self._input[tensor.role] = self._input.get(tensor.role, 0) + tensor.n_bytes
        elif outside and _OUTPUT_NAME.match(tensor.name):
            self._output[tensor.role] = self._output.get(tensor.role, 0) + tensor.n_bytes
        else:
            self._take_block(tensor, tensor.layer or 0)

    def _overridden(self, name: str) -> str | None:
        """Device of the first rule that finds a tensor's name."""
        for rule, device in self._rules:
            if rule.search(name):
                return device
        return None

    def _override(self, tensor: Tensor, device: str) -> None:
        self._fixed[device, tensor.role] = self._fixed.get((device, tensor.role), 0) + tensor.n_bytes
        if tensor.layer is not None and _is_expert(tensor.name):
            key = (tensor.layer, device)
            self.overridden[key] = self.overridden.get(key, 0) + tensor.n_bytes
        if tensor.layer is not None:
            self._forced.setdefault(tensor.layer, []).append((_short(tensor.name), device))

    def _take_block(self, tensor: Tensor, layer: int) -> None:
        role = self._roles.get(tensor.role)
        if role is None:
            role = self._roles[tensor.role] = _Bytes([0] * self.model.n_layer, [0] * self.model.n_layer)
        expert = _is_expert(tensor.name)
        (role.expert if expert else role.dense)[layer] += tensor.n_bytes
        if expert:
            self._movable.setdefault(layer, []).append(_short(tensor.name))
        if tensor.type in REPACKED_TYPES and len(tensor.shape) > 1 and tensor.shape[1] % 8 == 0:
            (self._repack.expert if expert else self._repack.dense)[layer] += tensor.n_bytes

    def elsewhere(self, layer: int, device: str, n_cpu_moe: int) -> tuple[tuple[str, str], ...]:
        """``(name, device)`` of a block's tensors that are not with their layer; the name as ``ffn_up_exps``."""
        found = [(name, where) for name, where in self._forced.get(layer, ()) if where != device]
        if layer < n_cpu_moe and device != HOST:
            found += [(name, HOST) for name in self._movable.get(layer, ())]
        return tuple(found)

    def head_device(self, output_device: str) -> str:
        """Device of the output matrix."""
        if self.tied:
            return self._tied_device(output_device)
        return self._overridden("output.weight") or output_device

    def expert_bytes(self, layer: int) -> int:
        """Bytes that ``--n-cpu-moe`` moves for one block; what an override places does not count."""
        return self.expert_between(layer, layer + 1)

    def expert_between(self, start: int, stop: int) -> int:
        """The same for blocks ``start <= i < stop``."""
        return sum(role.expert[stop] - role.expert[start] for role in self._roles.values()) if stop > start else 0

    def dense_bytes(self, layer: int) -> int:
        """Bytes of one block that stay with its layer."""
        return sum(role.dense[layer + 1] - role.dense[layer] for role in self._roles.values())

    def place(self, layout: Iterable[Span], n_cpu_moe: int) -> Placed:
        """Put every tensor somewhere.

        ``token_embd`` and lookup tables stay in host memory (``dev_input``, src/llama-model.cpp:1605, b11312);
        with a tied head the embedding is placed with the output layer once more, if that is elsewhere.
        """
        placed = Placed(lazy=self._lazy)
        for role, n_bytes in self._input.items():
            placed.add(HOST, role, n_bytes)
        for (device, role), n_bytes in self._fixed.items():
            placed.add(device, role, n_bytes)
        for span in layout:
            cut = max(span.start, min(span.stop, n_cpu_moe))
            placed.repackable += self._repack.expert[cut] - self._repack.expert[span.start]
            if span.device == HOST:
                placed.repackable += self._repack.expert[span.stop] - self._repack.expert[cut]
                placed.repackable += self._repack.dense[span.stop] - self._repack.dense[span.start]
            for role, sums in self._roles.items():
                expert = sums.expert
                placed.add(
                    span.device, role, sums.dense[span.stop] - sums.dense[span.start] + expert[span.stop] - expert[cut]
                )
                placed.add(HOST, role, expert[cut] - expert[span.start])
            if span.has_output:
                for role, n_bytes in self._output.items():
                    placed.add(span.device, role, n_bytes)
                head = self._tied_device(span.device)
                if self.tied and (self._head_first or head != self._tied_device(HOST)):
                    placed.add(head, Role.OUTPUT, self._embedding)
        return placed

    def _tied_device(self, output_device: str) -> str:
        """Device of a tied head, or with ``HOST`` of the embedding: overrides match both as ``token_embd.weight``.

        In one place they are one tensor (``create_tensor``, src/llama-model-loader.cpp, b11434).
        """
        return self._overridden("token_embd.weight") or output_device


def _prefix(row: list[int]) -> list[int]:
    return list(accumulate(row, initial=0))


@lru_cache(maxsize=4096)
def _is_expert(name: str) -> bool:
    return EXPERT_NAME.search(name) is not None


@lru_cache(maxsize=4096)
def _short(name: str) -> str:
    """``blk.3.ffn_up_exps.weight`` → ``ffn_up_exps``."""
    return name.split(".", 2)[2].removesuffix(".weight")
