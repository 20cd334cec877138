"""A verification as JSON and as text, and what a plan says of earlier ones."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from rich.console import Console, RenderableType

from emit.json_read import plan_from
from emit.json_v1 import plan_json, schema_text, schemas, verified_json
from emit.text import plan_view
from emit.verified_view import foreseen_view, kept_words, verification_view
from planner.errors import PlanFileError
from planner.plans.speed import Band
from planner.plans.verified import Compared, Finding, Forecast, Foreseen, Verification
from tests.emit.plans import NASTY, make_plan, refused_plan
from tests.emit.verifications import LEARNED, make_trial, make_verification

DOCS = Path(__file__).parents[2] / "docs" / "schema"
CONTRACT = (
    "schema verdict reason when engine plan observed trials steps_back depth_tokens deep steady answer buffers "
    "offloaded_layers load_s peak_rss_bytes major_faults last_lines notes correction url"
)


def loaded(found: Verification) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(verified_json(found), parse_constant=pytest.fail)
    jsonschema.validate(data, schemas()["moeplan.verified/1"])
    return data


def shown(view: RenderableType) -> str:
    console = Console(file=io.StringIO(), width=100, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(view, crop=False)
    return capture.get()


def test_keys_are_those_of_the_contract() -> None:
    data = loaded(make_verification())
    assert list(data) == CONTRACT.split()
    assert data["schema"] == "moeplan.verified/1" and data["plan"]["schema"] == "moeplan.plan/1"
    assert "lint" not in data["plan"] and "verified" not in data["plan"]
    trial = data["trials"][0]
    assert trial["changes"] == [{"setting": "n_ubatch", "value": 1024}] and trial["settings"]["n_ubatch"] == 1024
    assert (trial["kept"], trial["gain"], data["trials"][1]["gain"]) == (True, 0.2, None)
    assert trial["peak_bytes"] == {"CUDA0": 5000 << 20}


def test_the_shipped_schema_is_current() -> None:
    text = (DOCS / "moeplan.verified-1.json").read_text()
    assert text == schema_text(schemas()["moeplan.verified/1"])


@pytest.mark.parametrize("finding", list(Finding))
def test_a_failure_is_whole_json(finding: Finding) -> None:
    found = make_verification(
        finding=finding, compared=(), trials=(), answer=None, placement=None, loaded_s=None, learned=None,
        peak_rss_bytes=None, major_faults=None, lines=("error: invalid argument: --x",),
    )  # fmt: skip
    data = loaded(found)
    assert data["verdict"] == finding.value
    assert (data["answer"], data["buffers"], data["correction"]) == (None, [], None)


def test_strings_of_a_model_cannot_steer_a_terminal() -> None:
    answer = make_verification().answer
    assert answer is not None
    for text in NASTY:
        found = make_verification(answer=replace(answer, text=text), lines=(text,), notes=(text,), reason=text)
        assert json.loads(verified_json(found))["answer"]["text"] == text
        for out in (verified_json(found), shown(verification_view(found))):
            assert all(char == "\n" or char.isprintable() for char in out)


def test_the_text_says_what_was_checked() -> None:
    text = shown(verification_view(make_verification(url="http://127.0.0.1:8080")))
    assert text.startswith("Verified: it answers as fast as predicted, or faster.\nServing at http://127.0.0.1:8080\n")
    assert "40.0 tok/s (32.0 to 48.0)" in text and "41.0 tok/s" in text
    assert "1,536 MiB" in text and "1,600 MiB" in text and "more" in text
    assert "n_ubatch 1024" in text and "kept: 20.0% faster" in text and "dropped: no room" in text
    assert "moe_cache_mib 0: GPU memory ran out" in text
    assert "decode x0.62, prefill x1.10 of the raw prediction (3 runs); 100 MiB more of CUDA0; n_ubatch 1024 kept" in (
        " ".join(text.split())
    )
    assert "llama-server" in text


def test_a_rate_that_only_shows_is_no_verdict() -> None:
    prefill = Compared("prefill", "tok/s", Band(183.0, 200.0, 220.0), 45.8, within=True, judged=False)
    found = make_verification(compared=(prefill,))
    assert "too short a prompt to tell" in shown(verification_view(found))
    row = loaded(found)["observed"][0]
    assert (row["within"], row["judged"]) == (True, False)


def test_the_text_says_at_which_depth_and_from_which_runs() -> None:
    text = shown(verification_view(make_verification(at=1027, steady=False)))
    assert "Observed against predicted (rates with 1,027 tokens of prompt)\n" in text
    assert "the next plan, from earlier runs: decode x0.62" in text
    assert "the next plan: decode x0.62" in shown(verification_view(make_verification()))


def test_what_is_kept_is_named() -> None:
    """``kept for the next plan`` stood below ``the next plan: its speed was not learned``."""
    memory = "the memory that devices needed beyond the prediction, n_ubatch 1024"
    assert kept_words(make_verification()) == f"the verdict, the speed of decode, {memory}"
    assert kept_words(make_verification(steady=False)) == f"the verdict, no speed, {memory}"
    plain = replace(LEARNED, extra=(), kept=(("n_ubatch", "\x1b[1m"),))
    assert kept_words(make_verification(compared=(), learned=plain)) == "the verdict, no speed, n_ubatch \\x1b[1m"
    assert kept_words(make_verification(learned=None)) == ""


def test_a_slow_run_of_an_unsteady_machine_is_inconclusive() -> None:
    """``Slower: inconclusive: the machine was busy`` asserted and took back. The JSON's verdict stays."""
    found = make_verification(finding=Finding.SLOWER, steady=False, reason="the machine was busy; decode runs at 1.0")
    assert shown(verification_view(found)).startswith("Inconclusive: the machine was busy; decode runs at 1.0.")
    data = loaded(found)
    assert (data["verdict"], data["steady"], data["reason"]) == ("slower", False, found.reason)
    for finding, steady, word in ((Finding.SLOWER, True, "Slower: "), (Finding.VERIFIED, False, "Verified: ")):
        other = make_verification(finding=finding, steady=steady)
        assert shown(verification_view(other)).startswith(word) and loaded(other)["steady"] is steady


def test_a_failure_prints_no_command() -> None:
    text = shown(
        verification_view(make_verification(finding=Finding.FAILED, reason="no room", lines=("out of memory",)))
    )
    assert text.startswith("Failed: no room.") and "- out of memory" in text and "llama-server" not in text


def test_what_would_be_tried() -> None:
    attempt = make_trial().attempt
    blind = replace(attempt, expected=None, basis="nobody knows")
    trials = (Forecast(attempt, 2048, 41.5, fits=True), Forecast(blind, 512, 260.0, fits=False))
    text = shown(foreseen_view(Foreseen(trials, 8704, 60.0, 300.0)))
    assert "the first answer, then 8,704 tokens of prompt: 60.0 s" in text
    rows = [line.split() for line in text.splitlines() if line.split()[:1] == ["n_ubatch"]]
    assert "saves 5.0%" in " ".join(rows[0]) and {"2,048", "41.5", "yes"} <= set(rows[0])
    assert "gain unknown" in " ".join(rows[1]) and {"512", "260", "no"} <= set(rows[1])
    assert "Nothing would be tried" in shown(foreseen_view(Foreseen((), 0, 0.0, 300.0)))


def test_a_plan_shows_when_it_was_verified() -> None:
    plan = make_plan()
    known = replace(plan, verified=LEARNED)
    text = shown(plan_view(known))
    assert "Verified on 2026-01-02: decode x0.62" in text
    assert "Its family of models was verified on" in shown(
        plan_view(replace(plan, verified=replace(LEARNED, exact=False)))
    )
    slower = " ".join(shown(plan_view(replace(plan, verified=replace(LEARNED, exact=False, slower=True)))).split())
    assert "It or its family of models ran on 2026-01-02, slower than predicted: decode x0.62" in slower
    assert "erified" not in slower
    data = json.loads(plan_json(known))
    jsonschema.validate(data, schemas()["moeplan.plan/1"])
    assert data["verified"]["kept"] == {"n_ubatch": "1024"} and data["verified"]["decode_ratio"] == 0.62


def test_a_plan_comes_back_from_either_file() -> None:
    for text in (plan_json(make_plan()), verified_json(make_verification())):
        saved = plan_from(text, "plan.json")
        assert saved.argv == tuple(json.loads(plan_json(make_plan()))["argv"])
        assert saved.decisions == make_plan().decisions and not saved.refused
    assert plan_from(plan_json(refused_plan()), "plan.json").refused


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":"moeplan.verified/1"}', '{"schema":"moeplan.verified/2"}'])
def test_other_files_are_refused(text: str) -> None:
    with pytest.raises(PlanFileError):
        plan_from(text, "plan.json")
