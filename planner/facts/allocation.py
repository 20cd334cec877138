"""What an engine itself says that it would allocate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

HOST_ROW: Final = "Host"
"""Name of the row that sums every buffer in host memory."""


@dataclass(frozen=True, slots=True)
class Allocation:
    """One row of ``llama-fit-params --fit-print on``: bytes, each rounded down to whole MiB by the engine.

    Args:
        device: id of a device, or ``Host``.
        context_bytes: KV caches and, where there is one, the expert cache.
    """

    device: str
    model_bytes: int
    context_bytes: int
    compute_bytes: int
