"""What a pool of experts would have served: recorded selections through caches of every size.

A batch is what is looked up at once: all prompt tokens of a layer, or one token of a layer. Each expert of a batch is
looked up once; what it brings in may exceed the budget until the batch ends. The same accounting as the engine's that
recorded the shared traces (scripts/route-replay.py of Helldez/BigMoeOnEdge), so curves can be compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from planner.facts.routing import NOT_ROUTED

if TYPE_CHECKING:
    import numpy as np

NEVER: Final = float("inf")


@dataclass(frozen=True, slots=True)
class Lookups:
    """Every look-up in order.

    Args:
        entry: layer row times ``n_expert`` plus expert.
        batch: number of the batch, ascending.
        scored: whether it counts; what comes before only fills the pool.
        n_bytes: of one expert, per look-up.
    """

    entry: np.ndarray
    batch: np.ndarray
    scored: np.ndarray
    n_bytes: np.ndarray


def lookups(warm: np.ndarray, scored: np.ndarray, expert_bytes: np.ndarray, n_expert: int) -> Lookups:
    """The look-ups of a prompt (one batch per layer) and then of decoded tokens.

    Args:
        warm, scored: ``[token, layer row, slot]``; either may be empty.
        expert_bytes: of one expert per layer row.
    """
    import numpy as np

    prompt = [_last_of_each(warm[:, row].ravel()) for row in range(warm.shape[1])] if len(warm) else []
    entries = [row * n_expert + ids for row, ids in enumerate(prompt)]
    sizes = np.array([len(ids) for ids in prompt], np.int64)
    tokens, rows, slots = scored.shape
    decode = np.arange(rows)[None, :, None] * n_expert + scored.astype(np.int64)
    routed = (scored != NOT_ROUTED).ravel()
    numbers = np.repeat(np.arange(tokens * rows), slots) + len(prompt)
    entry = np.concatenate([*entries, decode.ravel()[routed]]).astype(np.int64)
    batch = np.concatenate([np.repeat(np.arange(len(prompt)), sizes), numbers[routed]])
    counted = np.concatenate([np.zeros(int(sizes.sum()), bool), np.ones(int(routed.sum()), bool)])
    return Lookups(entry, batch, counted, expert_bytes[entry // n_expert])


def _last_of_each(ids: np.ndarray) -> np.ndarray:
    """Distinct routed ids in the order of their last occurrence."""
    import numpy as np

    ids = ids[ids != NOT_ROUTED][::-1]
    _, first = np.unique(ids, return_index=True)
    distinct: np.ndarray = ids[np.sort(first)][::-1].astype(np.int64)
    return distinct


def reuse_bytes(found: Lookups) -> np.ndarray:
    """Per scored look-up, the smallest LRU pool in bytes that would still hold it; infinite for a first use.

    That is the size of everything used since its last use, itself included, up to the end of the batch before: LRU
    keeps a prefix of that order. Counted for all look-ups at once by merging halves: an earlier look-up ``j`` adds
    an expert that is new since ``p`` (the last use of ``i``) exactly if its own last use is before ``p``.
    """
    import numpy as np

    n = len(found.entry)
    last = _last_use(found.entry)
    before = np.concatenate([[0], np.cumsum(found.n_bytes)])
    order = np.argsort(last, kind="stable")
    total = np.zeros(n, np.float64)
    n_batches = int(found.batch[-1]) + 1 if n else 0
    step = 1
    while step < n_batches:
        half = found.batch[order] // step
        by_pair = order[np.argsort(half // 2, kind="stable")]
        left = found.batch[by_pair] // step % 2 == 0
        running = np.cumsum(np.where(left, found.n_bytes[by_pair], 0))
        pair = found.batch[by_pair] // (2 * step)
        starts = np.concatenate([[0], np.flatnonzero(np.diff(pair)) + 1])
        base = np.repeat(np.where(starts > 0, running[starts - 1], 0), np.diff([*starts, n]))
        total[by_pair] += np.where(left, 0, running - base)
        step *= 2
    distance: np.ndarray = np.where(last >= 0, total - before[np.maximum(last, 0)], NEVER)[found.scored]
    return distance


def _last_use(entry: np.ndarray) -> np.ndarray:
    """Index of the look-up before with the same entry; -1 for the first. Distinct for all that have one."""
    import numpy as np

    order = np.argsort(entry, kind="stable")
    same = entry[order][1:] == entry[order][:-1]
    last = np.full(len(entry), -1, np.int64)
    last[order[1:][same]] = order[:-1][same]
    return last


def lfu_hits(found: Lookups, budget: float) -> float:
    """Hit rate of a pool that drops what was used least often, oldest first among equals."""
    from heapq import heappop, heappush

    often: dict[int, int] = {}
    used: dict[int, int] = {}
    held: dict[int, float] = {}
    heap: list[tuple[int, int, int]] = []
    full, clock, hits = 0.0, 0, 0
    for ids, sizes, scored in _batches(found):
        for entry, n_bytes in zip(ids, sizes, strict=True):
            clock += 1
            hits += scored and entry in held
            full += 0 if entry in held else n_bytes
            held[entry] = n_bytes
            often[entry] = often.get(entry, 0) + 1
            used[entry] = clock
            heappush(heap, (often[entry], clock, entry))
        spared, needed = [], set(ids)
        while full > budget and heap:
            item = heappop(heap)
            entry = item[2]
            if entry not in held or item[:2] != (often[entry], used[entry]):
                continue
            if entry in needed:
                spared.append(item)
                continue
            full -= held.pop(entry)
        for item in spared:
            heappush(heap, item)
    return hits / max(int(found.scored.sum()), 1)


def _batches(found: Lookups) -> Iterator[tuple[list[int], list[float], bool]]:
    """Entries, bytes and whether they count, batch by batch."""
    import numpy as np

    ends = np.concatenate([np.flatnonzero(np.diff(found.batch)) + 1, [len(found.batch)]])
    entries, sizes, scored = found.entry.tolist(), found.n_bytes.tolist(), found.scored.tolist()
    start = 0
    for end in ends.tolist():
        yield entries[start:end], sizes[start:end], scored[start]
        start = end
