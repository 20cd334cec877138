"""Replays against the shared traces' published curves, and against a plain simulation."""

from __future__ import annotations

import csv
from collections import OrderedDict
from pathlib import Path

import numpy as np
import pytest

from planner.facts.routing import NOT_ROUTED, Ground, Policy, Routing
from planner.routing.analysis import analyse
from planner.routing.replay import lfu_hits, lookups, reuse_bytes
from planner.routing.selections import phase_of

TRACES = ("qwen", "gemma", "gptoss")


def recording(shared: Path, name: str) -> tuple[Routing, tuple[int, ...]]:
    with np.load(shared / "traces" / f"{name}.seq.npz") as found:
        decode, prefill, sizes = found["decode"], found["prefill"], found["expert_bytes"]
    layers = tuple(range(decode.shape[1]))
    phases = phase_of(prefill, 128), phase_of(decode, 128)
    return Routing(name, "trace", layers, 128, decode.shape[2], *phases), tuple(int(n) for n in sizes)


def published(shared: Path, name: str) -> dict[float, dict[str, str]]:
    with open(shared / "traces" / f"{name}.curve.csv") as file:
        return {float(row["frac"]): row for row in csv.DictReader(file) if row["kind"] == "frac"}


@pytest.mark.parametrize("name", TRACES)
def test_agrees_with_the_published_curves(shared: Path, name: str) -> None:
    routing, sizes = recording(shared, name)
    stats, curves = analyse(routing, sizes), published(shared, name)
    for policy, column in (
        (Policy.LRU, "lru"),
        (Policy.LFU, "lfu"),
        (Policy.STATIC, "static_global_oracle"),
        (Policy.LAYERS, "static_whole_layers_last"),
    ):
        curve = stats.curve(policy)
        assert curve is not None
        for share in (0.1, 0.2, 0.3, 0.5):
            assert curve.at(share) == pytest.approx(float(curves[share][column]), abs=0.01), (policy, share)


@pytest.mark.parametrize("name", TRACES)
def test_counts_alone_bound_the_replay(shared: Path, name: str) -> None:
    """Independent draws hit less than real routes where frequencies are not learned from a few tokens."""
    routing, sizes = recording(shared, name)
    replayed = analyse(routing, sizes, every_policy=False).adaptive
    whole = Routing(name, "counts", routing.layers, 128, routing.n_used, None, phase_of_counts_of(routing))
    bound = analyse(whole, sizes, every_policy=False).adaptive
    assert (replayed.ground, bound.ground) == (Ground.REPLAY, Ground.COUNTS)
    assert bound.at(0.05) < replayed.at(0.05)
    assert bound.at(0.0) == 0.0


def phase_of_counts_of(routing: Routing):  # type: ignore[no-untyped-def]
    from dataclasses import replace

    assert routing.decode is not None
    return replace(routing.decode, sequence=None)


def test_overlap_is_as_published(shared: Path) -> None:
    """facts/bigmoe_auto.md: 0.38 of the experts again at a distance of one token, 0.27 at eight."""
    routing, sizes = recording(shared, "qwen")
    overlap = dict(analyse(routing, sizes, every_policy=False).overlap)
    assert overlap[1] == pytest.approx(0.38, abs=0.01)
    assert overlap[8] == pytest.approx(0.27, abs=0.01)


def plain_lru(warm: np.ndarray, scored: np.ndarray, sizes: list[float], budget: float) -> float:
    """The same accounting, step by step."""
    held: OrderedDict[tuple[int, int], float] = OrderedDict()
    looked = hits = 0

    def batch(row: int, ids: list[int], counts: bool) -> None:
        nonlocal looked, hits
        touched = set()
        for expert in ids:
            key = (row, expert)
            if expert != NOT_ROUTED and key not in touched:
                looked, hits = looked + counts, hits + (counts and key in held)
            if expert != NOT_ROUTED:
                touched.add(key)
                held[key] = sizes[row]
                held.move_to_end(key)
        for key in list(held):
            if sum(held.values()) <= budget:
                break
            if key not in touched:
                del held[key]

    for row in range(scored.shape[1]):
        batch(row, warm[:, row].ravel().tolist(), False)
    for token in scored:
        for row, ids in enumerate(token):
            batch(row, ids.tolist(), True)
    return hits / looked


@pytest.mark.parametrize("seed", range(6))
def test_all_sizes_at_once_equal_one_size_at_a_time(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows, experts, used = 3, 12, 2
    weights = random.dirichlet(np.ones(experts) * 0.6)

    def draw(tokens: int) -> np.ndarray:
        return np.array(
            [[random.choice(experts, used, replace=False, p=weights) for _ in range(rows)] for _ in range(tokens)],
            np.uint16,
        )

    warm, scored = draw(5), draw(60)
    warm[:4, -1] = NOT_ROUTED
    sizes = [10.0, 20.0, 15.0]
    reuse = reuse_bytes(lookups(warm, scored, np.array(sizes), experts))
    for budget in (95.0, 120.0, 200.0, 350.0, 1000.0):
        assert np.mean(reuse <= budget) == pytest.approx(plain_lru(warm, scored, sizes, budget)), budget


def test_lfu_keeps_what_is_used_often() -> None:
    """Expert 0 in every second token, the others once each: LRU of two forgets it, LFU does not."""
    ids = [0, 1, 0, 2, 3, 0, 4, 5, 0, 6, 7, 0]
    scored = np.array(ids, np.uint16).reshape(-1, 1, 1)
    found = lookups(np.empty((0, 1, 1), np.uint16), scored, np.array([1.0]), 8)
    assert lfu_hits(found, 2.0) == pytest.approx(4 / 12)
    assert np.mean(reuse_bytes(found) <= 2.0) == pytest.approx(1 / 12)
