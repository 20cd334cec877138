"""The whole way on an engine that answers as a test says: steps back, trials, what is lost, what is learned."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from planner import search
from planner.errors import OptionError
from planner.facts.machine import Engine as EngineFacts
from planner.facts.observed import Answer, CpuTime, GpuSample, Placement, Sample
from planner.plans.plan import Candidate, Plan, Verdict
from planner.plans.settings import LoadMode, Settings
from planner.plans.verified import Finding, Verification
from planner.search import Pricing
from planner.units import GIB, MIB
from planner.verification.engine import Engine, Kind, Trouble
from planner.verification.flow import verified
from planner.verification.options import Options
from planner.verification.startable import Own, check_plan, check_prompt
from planner.verification.texts import QUESTION
from planner.verification.watch import Watch
from policies import RULES
from probes.engine_cause import Cause
from probes.engine_cause import Kind as Why
from probes.host import LocalHost
from probes.server_http import Address
from probes.session import Down, Question, Stopped, Tick
from tests.policies.problems import card, machine, solved

Outcome = Answer | Down | Stopped
Reply = Callable[[Settings, Question], Outcome]
ENGINE_MACHINE = machine(card(8))


def answer(question: Question, prefill: float = 1000.0, decode: float = 60.0, tokens: tuple[int, ...] = ()) -> Answer:
    n = len(question.prompt)
    return Answer("Hello", tokens or tuple(range(64)), n, n / prefill, 64, 64 / decode, n / prefill, (1 / decode,) * 63)


@dataclass
class FakeSession:
    settings: Settings
    reply: Reply
    pid: int = os.getpid()
    url: str | None = "http://127.0.0.1:1"
    loaded_s: float = 0.0
    gone: Down | None = None

    def placement(self) -> Placement:
        return Placement()

    def tokenize(self, text: str) -> tuple[int, ...]:
        return tuple(range(100))

    def ask(self, question: Question, hear: Callable[[str], None], tick: Tick) -> Outcome:
        found = self.reply(self.settings, question)
        if isinstance(found, Answer):
            hear(found.text)
        if isinstance(found, Down):
            self.gone = found
        return found

    def alive(self) -> Down | None:
        return self.gone

    def close(self) -> None:
        self.gone = self.gone or Down(Cause(Why.OTHER, "closed"))


class Heard:
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.text = ""

    def note(self, text: str) -> None:
        self.notes.append(text)

    def hear(self, text: str) -> None:
        self.text += text

    def heard(self) -> None: ...


class Host(LocalHost):
    def stamp(self, path: str) -> tuple[int, int] | None:
        return (1, self.version)

    version = 1


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(cache_dir=str(tmp_path))


@pytest.fixture
def run(host: Host, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Verification]:
    """Verify a plan on an engine that replies as told; ``refuse`` keeps settings from starting."""
    monkeypatch.setattr("probes.sampling.busy_share", lambda host: 0.0)
    monkeypatch.setattr("probes.sampling.cpu_time", lambda host, pid: None)

    def call(plan: Plan, reply: Reply, refuse: Callable[[Settings], Trouble | None], **options: Any) -> Verification:
        def opened(self: Engine, candidate: Candidate, begun: Callable[[int], Tick]) -> FakeSession | Trouble:
            begun(os.getpid())
            return refuse(candidate.settings) or FakeSession(candidate.settings, reply)

        monkeypatch.setattr(Engine, "_open", opened)
        with verified(host, plan, priced(plan), Options(**options), Heard()) as running:
            return running.verification

    return call


def priced(plan: Plan) -> Pricing:
    return search.pricing(plan, RULES)


def willing(settings: Settings) -> Trouble | None:
    return None


def as_predicted(plan: Plan) -> Reply:
    speed = plan.chosen.speed

    def reply(settings: Settings, question: Question) -> Outcome:
        return answer(question, speed.prefill_tps.mid, speed.decode_tps.mid)

    return reply


Verify = Callable[..., Verification]


def test_a_plan_that_holds(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    found = run(plan, as_predicted(plan), willing, max_trials=0)
    assert found.finding is Finding.VERIFIED
    assert {item.term for item in found.compared} >= {"decode", "prefill"}
    assert found.plan.chosen == plan.chosen
    assert found.learned is not None and found.learned.exact and found.learned.kept == ()


def test_slower_than_the_low_end_is_said(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)

    def reply(settings: Settings, question: Question) -> Outcome:
        return answer(question, plan.chosen.speed.prefill_tps.mid, 1.0)

    found = run(plan, reply, willing, max_trials=0)
    assert found.finding is Finding.SLOWER and found.reason.startswith("decode runs at 1.0 tok/s")


def test_what_was_not_timed_is_not_verified(run: Verify) -> None:
    def reply(settings: Settings, question: Question) -> Outcome:
        return replace(answer(question), prompt_s=0.0, predicted_s=0.0)

    found = run(solved(ENGINE_MACHINE), reply, willing, max_trials=0)
    assert found.finding is Finding.FAILED and found.reason.startswith("the engine told no time")
    assert found.learned is None


def test_a_very_short_prompt_teaches_no_prefill(run: Verify, host: Host) -> None:
    """``--prompt Hello --budget 0``: decode is judged and learned, prefill of five tokens is shown."""
    plan = solved(ENGINE_MACHINE)
    decode = plan.chosen.speed.decode_tps.mid
    found = run(plan, lambda settings, question: answer(question, 1.0, decode), willing, prompt="Hello", budget_s=0.0)
    prefill = next(item for item in found.compared if item.term == "prefill")
    assert found.finding is Finding.VERIFIED and (prefill.observed, prefill.judged) == (1.0, False)
    assert "prefill of 5 tokens is shown, not judged or learned: that takes a prompt of 128" in found.notes
    assert found.learned is not None and found.learned.prefill_ratio is None and found.learned.decode_ratio is not None
    assert found.learned.prefill_spread is None and found.learned.depth == 5


def test_a_prompt_that_no_slot_holds_is_counted_in_pieces(run: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four million bytes: the list of their tokens was longer than what is read, and the failure named that."""
    plan = solved(ENGINE_MACHINE)
    slots = replace(plan, chosen=replace(plan.chosen, settings=replace(plan.chosen.settings, n_ctx=250)))
    monkeypatch.setattr("planner.verification.looking.PIECE", 1000)
    found = run(slots, as_predicted(plan), willing, prompt="word " * 1000)
    assert found.finding is Finding.FAILED
    assert found.reason == "a slot of 250 tokens has no room for an answer to a prompt of at least 300"


def test_a_prompt_that_no_tokenizer_brings_into_a_slot_starts_nothing() -> None:
    plan = solved(ENGINE_MACHINE)
    check_prompt(plan, None)
    check_prompt(plan, "a" * 256 * 8192)
    with pytest.raises(
        OptionError, match=r"--prompt: expected what fits a slot of 8,192 tokens, found 4,000,000 bytes"
    ):
        check_prompt(plan, "a" * 4_000_000)


def test_what_could_not_be_stored_is_said_with_its_place(run: Verify, host: Host, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    host._cache_dir = str(tmp_path / "file" / "moeplan")
    plan = solved(ENGINE_MACHINE)
    found = run(plan, as_predicted(plan), willing, max_trials=0)
    assert found.finding is Finding.VERIFIED and found.learned is None
    said = f"the next plan learns nothing of this run: it could not be stored in {tmp_path / 'file' / 'moeplan'}: "
    assert any(note.startswith(said) for note in found.notes)


def test_what_times_an_answer_that_ended_at_once_has_a_prompt_that_tells(run: Verify) -> None:
    plan, asked = solved(ENGINE_MACHINE), []

    def reply(settings: Settings, question: Question) -> Outcome:
        asked.append(len(question.prompt))
        found = answer(question, plan.chosen.speed.prefill_tps.mid, plan.chosen.speed.decode_tps.mid)
        return found if question.exact else replace(found, predicted_n=1)

    found = run(plan, reply, willing, prompt="Hello", max_trials=0, budget_s=0.0)
    assert asked == [5, 128] and found.depth == 128
    assert all(item.judged for item in found.compared)


def test_a_short_prompt_does_not_steer_what_longer_ones_are_expected_to_take() -> None:
    """A slot of little room: the answer that times it has fewer tokens than tell, and says nothing of prefill."""
    from planner.verification.engine import Live
    from planner.verification.looking import Seen, pace_of

    plan = solved(ENGINE_MACHINE)
    pricing = priced(plan)
    speed = pricing.at(plan.chosen.settings, 100, 64).speed
    live = Live(plan.chosen, FakeSession(plan.chosen.settings, as_predicted(plan)), None)  # type: ignore[arg-type]
    timed = replace(answer(Question("x" * 100, 64), 1.0), predicted_s=64 / speed.decode_tps.mid)
    seen = Seen(live, timed, (1,), Placement(), 256, long=timed)
    there = pricing.at(plan.chosen.settings, 1000, 64).speed
    assert pace_of(seen, pricing, 1000).prefill_tps == pytest.approx(there.prefill_tps.mid)


@pytest.mark.parametrize(("verdict", "waits"), [(Verdict.FITS, False), (Verdict.PAGES, True)])
def test_a_first_start_from_a_cold_disk_is_no_measure_of_the_next(verdict: Verdict, waits: bool) -> None:
    """Where RAM holds the file; 25 s instead of 0.3 s left no time for trials (0.8 GB, two cores)."""
    from planner.verification.engine import Live
    from planner.verification.looking import Seen, pace_of

    plan = solved(ENGINE_MACHINE)
    session = FakeSession(plan.chosen.settings, as_predicted(plan))
    session.loaded_s = 1000.0
    live = Live(replace(plan.chosen, verdict=verdict), session, None)  # type: ignore[arg-type]
    seen = Seen(live, answer(Question("x" * 100, 64), 1.0), (1,), Placement(), 8192)
    found = pace_of(seen, priced(plan), 1000).load_s
    assert found == 1000.0 if waits else found == pytest.approx(0.5 + plan.model.file_bytes / 0.75e9)


@pytest.mark.parametrize("kind", [Kind.MEMORY, Kind.COLLAPSE])
def test_it_steps_back_until_it_holds(run: Verify, kind: Kind) -> None:
    plan = solved(ENGINE_MACHINE)

    def refuse(settings: Settings) -> Trouble | None:
        return Trouble(kind, "too tight") if settings.n_ubatch > 512 else None

    found = run(plan, as_predicted(plan), refuse, max_trials=0)
    assert found.finding is not Finding.FAILED
    assert {step.reason for step in found.steps} == {"too tight"} and len(found.steps) >= 2
    assert found.plan.chosen.settings.n_ubatch <= 512 < plan.chosen.settings.n_ubatch
    decided = next(d for d in found.plan.decisions if d.setting == "n_ubatch")
    assert "stepped back: too tight" in decided.headline and decided.value == found.plan.chosen.settings.n_ubatch
    assert dict(found.learned.kept)["n_ubatch"] == str(decided.value) if found.learned else False


@pytest.mark.parametrize("budget", [False, True])
def test_a_device_that_needs_more_than_predicted(run: Verify, monkeypatch: pytest.MonkeyPatch, budget: bool) -> None:
    """It answers, but 600 MiB more are in use than predicted, and less than the rule is free."""
    plan = solved(ENGINE_MACHINE)
    plan = replace(plan, workload=replace(plan.workload, vram_bytes=(("CUDA0", 8 * GIB),))) if budget else plan

    def samples(self: Watch) -> tuple[Sample, ...]:
        (device,) = self._candidate.memory.devices
        used = device.used_before_bytes + device.predicted_bytes + 600 * MIB
        return (Sample(0.0, (GpuSample(device.id, used),)),)

    monkeypatch.setattr(Watch, "samples", samples)
    found = run(plan, as_predicted(plan), willing, max_trials=0)
    assert bool(found.steps) is not budget
    if found.steps:
        assert found.steps[0].reason.startswith("CUDA0 needs 600 MiB more than predicted")
        assert found.plan.chosen.memory.devices[0].headroom_bytes >= GIB + 600 * MIB


def test_a_plan_that_never_holds_fails_with_its_cause(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    found = run(plan, as_predicted(plan), lambda settings: Trouble(Kind.MEMORY, "no room", ("said so",)), max_trials=0)
    assert (found.finding, found.reason, found.lines) == (Finding.FAILED, "no room", ("said so",))
    assert found.steps and found.learned is None


def test_a_collapse_without_a_way_back(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE, pins=(("n_ubatch", "512"), ("n_cpu_moe", "12"), ("load_mode", "none")))
    plan = replace(plan, workload=replace(plan.workload, pins=(*plan.workload.pins, ("cache_ram_mib", "0"))))
    found = run(plan, as_predicted(plan), lambda settings: Trouble(Kind.COLLAPSE, "pages"), max_trials=0)
    assert found.finding is Finding.COLLAPSED and found.steps == ()


def test_other_failures_are_not_stepped_back_from(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    found = run(plan, as_predicted(plan), lambda settings: Trouble(Kind.FAILED, "does not know --x"), max_trials=0)
    assert found.finding is Finding.FAILED and found.steps == ()


def faster_with_mmap(plan: Plan, gain: float, tokens: tuple[int, ...] = ()) -> Reply:
    speed = plan.chosen.speed

    def reply(settings: Settings, question: Question) -> Outcome:
        mapped = settings.load_mode is LoadMode.MMAP
        factor = gain if mapped else 1.0
        said = tokens if mapped else ()
        return answer(question, speed.prefill_tps.mid * factor, speed.decode_tps.mid * factor, said)

    return reply


def only_load_mode(found: Verification) -> Any:
    return next(t for t in found.trials if dict(t.attempt.changes).get("load_mode") is LoadMode.MMAP)


def test_a_faster_setting_is_kept_and_the_next_plan_has_it(run: Verify, host: Host) -> None:
    from planner.verification.learning import problem

    plan = solved(ENGINE_MACHINE)
    assert plan.chosen.settings.load_mode is LoadMode.NONE
    found = run(plan, faster_with_mmap(plan, 1.25), willing, max_trials=12, budget_s=3600.0)
    trial = only_load_mode(found)
    assert trial.kept and trial.gain == pytest.approx(0.2) and trial.pairs == 4
    assert found.plan.chosen.settings.load_mode is LoadMode.MMAP
    following = search.plan(problem(host, ENGINE_MACHINE, plan.model, plan.workload), RULES)
    assert following.chosen.settings.load_mode is LoadMode.MMAP
    assert following.verified is not None and following.verified.exact
    decided = next(d for d in following.decisions if d.setting == "load_mode")
    assert decided.headline.startswith(f"so verified on {found.when}; the rule says: ")


def test_a_change_of_prefill_is_not_credited_with_decode(run: Verify) -> None:
    """Whatever has another ubatch answers twice as fast here, which an ubatch cannot cause."""
    plan = solved(ENGINE_MACHINE)
    speed, usual = plan.chosen.speed, plan.chosen.settings.n_ubatch

    def reply(settings: Settings, question: Question) -> Outcome:
        factor = 1.0 if settings.n_ubatch == usual else 2.0
        return answer(question, speed.prefill_tps.mid, speed.decode_tps.mid * factor)

    found = run(plan, reply, willing, max_trials=12, budget_s=3600.0)
    tried = [trial for trial in found.trials if "n_ubatch" in dict(trial.attempt.changes)]
    assert tried and not any(trial.kept for trial in tried)


def test_a_slower_setting_is_dropped_with_its_number(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    found = run(plan, faster_with_mmap(plan, 0.8), willing, max_trials=12, budget_s=3600.0)
    trial = only_load_mode(found)
    assert not trial.kept and trial.reason == "25.0% slower"
    assert trial.before.decode_tps == pytest.approx(trial.after.decode_tps / 0.8)
    assert found.plan.chosen.settings.load_mode is LoadMode.NONE


def test_another_answer_is_not_speed_alone(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    reply = faster_with_mmap(plan, 2.0, (0, 1, 2, *range(100, 161)))
    trial = only_load_mode(run(plan, reply, willing, max_trials=12, budget_s=3600.0))
    assert not trial.kept and trial.reason == "not of speed alone: the greedy answer differs from token 4 on"


def test_a_change_that_does_not_start_is_dropped(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)

    def refuse(settings: Settings) -> Trouble | None:
        return Trouble(Kind.MEMORY, "no room") if settings.load_mode is LoadMode.MMAP else None

    found = run(plan, as_predicted(plan), refuse, max_trials=12, budget_s=3600.0)
    assert only_load_mode(found).reason == "no room" and found.finding is Finding.VERIFIED


def test_a_change_that_takes_three_times_as_long_is_stopped(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)

    def reply(settings: Settings, question: Question) -> Outcome:
        if settings.load_mode is LoadMode.MMAP:
            return Stopped("no end after 9 s")
        return as_predicted(plan)(settings, question)

    found = run(plan, reply, willing, max_trials=12, budget_s=3600.0)
    assert only_load_mode(found).reason == "far slower: no end after 9 s"


def test_settings_that_are_lost_in_a_trial_fail_it_all(run: Verify) -> None:
    plan, asked = solved(ENGINE_MACHINE), []

    def reply(settings: Settings, question: Question) -> Outcome:
        asked.append(settings)
        if len(asked) > 4 and settings == plan.chosen.settings:
            return Down(Cause(Why.KILLED, "it was ended from outside by SIGKILL"))
        return as_predicted(plan)(settings, question)

    found = run(plan, reply, willing, max_trials=12, budget_s=3600.0)
    assert (found.finding, found.reason) == (Finding.FAILED, "it was ended from outside by SIGKILL")


def test_a_file_that_changes_is_the_cause_whatever_happens(run: Verify, host: Host) -> None:
    plan = solved(ENGINE_MACHINE)

    def reply(settings: Settings, question: Question) -> Outcome:
        host.version += 1
        return as_predicted(plan)(settings, question)

    found = run(plan, reply, willing, max_trials=0)
    assert found.finding is Finding.FAILED and "changed" in found.reason and found.learned is None


def test_a_context_without_room_for_an_answer_is_refused(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    tight = replace(plan, chosen=replace(plan.chosen, settings=replace(plan.chosen.settings, n_ctx=120)))
    found = run(tight, as_predicted(plan), willing)
    assert found.finding is Finding.FAILED
    assert found.reason == "a slot of 120 tokens has no room for an answer to a prompt of 100"
    small = replace(plan.chosen.settings, n_ctx=256, n_parallel=256)
    engine = replace(plan, machine=replace(plan.machine, engine=EngineFacts("llama.cpp", 11549)))
    with pytest.raises(OptionError, match="at least 64 tokens per slot"):
        check_plan(replace(engine, chosen=replace(plan.chosen, settings=small)))


def test_no_time_is_said(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)
    found = run(plan, as_predicted(plan), willing, budget_s=0.0)
    assert found.trials == ()
    assert any("no time left to try" in note and "; 0 s are left, --budget" in note for note in found.notes)
    assert (
        found.depth == len(QUESTION)
        and not found.deep
        and "no prompt of 8,112 tokens, the whole context, was looked at" in found.reason
    )


def test_a_long_prompt_without_an_end_is_given_up(run: Verify) -> None:
    plan = solved(ENGINE_MACHINE)

    def reply(settings: Settings, question: Question) -> Outcome:
        if len(question.prompt) > 5000:
            return Stopped("no end after 150 s")
        return as_predicted(plan)(settings, question)

    found = run(plan, reply, willing, max_trials=1, budget_s=300.0)
    assert found.finding is Finding.VERIFIED and len(found.trials) == 1
    assert found.depth == plan.chosen.settings.n_ubatch and not found.deep
    assert "no prompt of 8,112 tokens, the whole context, was looked at" in found.reason


def test_a_busy_machine_teaches_no_speed(run: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solved(ENGINE_MACHINE)
    monkeypatch.setattr("probes.sampling.busy_share", lambda host: 0.8)
    found = run(plan, as_predicted(plan), willing, max_trials=0)
    assert "80% of the CPUs were busy before: the speed seen here is not learned" in found.notes
    assert found.learned is not None and found.learned.decode_ratio is None and found.learned.runs == 0
    assert found.finding is Finding.VERIFIED and found.word == "verified" and not found.steady


def test_a_slower_run_of_a_busy_machine_is_inconclusive(run: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solved(ENGINE_MACHINE)
    monkeypatch.setattr("probes.sampling.busy_share", lambda host: 0.8)
    found = run(plan, lambda settings, question: answer(question, 1.0, 1.0), willing, max_trials=0)
    assert (found.finding, found.word) == (Finding.SLOWER, "inconclusive")
    assert found.reason.startswith("the machine was busy; prefill runs at 1.0 tok/s, at least ")


def test_others_that_wake_up_after_the_start_teach_no_speed(run: Verify, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solved(ENGINE_MACHINE)
    cpu = (CpuTime(1000.0, 100.0, 10.0), CpuTime(1100.0, 180.0, 40.0))
    samples = tuple(Sample(10.0 * n, cpu=found) for n, found in enumerate(cpu))
    monkeypatch.setattr(Watch, "samples", lambda self: samples)
    found = run(plan, as_predicted(plan), willing, max_trials=0)
    assert "others took 50% of the CPUs meanwhile: the speed seen here is not learned" in found.notes
    assert found.learned is not None and found.learned.decode_ratio is None


def test_a_first_answer_far_above_the_later_ones_teaches_no_speed(run: Verify, host: Host) -> None:
    """Decode of 59.8 in the first answer and 13.5 after it, at a depth that explains a part of it."""
    plan = solved(ENGINE_MACHINE)

    def reply(settings: Settings, question: Question) -> Outcome:
        chat = isinstance(question.prompt, str)
        return answer(question, 62.6, 59.8 if chat else 13.5)

    found = run(plan, reply, willing, max_trials=0)
    assert found.finding is Finding.SLOWER and not found.steady
    assert found.word == "inconclusive" and found.reason.startswith("its speed was unsteady; ")
    assert any("of the first answer's, more than depth explains" in note for note in found.notes)
    assert found.learned is not None and (found.learned.decode_ratio, found.learned.runs) == (None, 0)


def test_blocks_that_disagree_teach_no_speed(run: Verify) -> None:
    """Every other start of the same settings answers at a third: the trial's noise is the machine's."""
    plan, started = solved(ENGINE_MACHINE), [0]
    speed = plan.chosen.speed

    def reply(settings: Settings, question: Question) -> Outcome:
        started[0] += question.exact and len(question.prompt) < 5000
        factor = 1.0 if started[0] % 3 else 1 / 3
        return answer(question, speed.prefill_tps.mid * factor, speed.decode_tps.mid * factor)

    found = run(plan, reply, willing, max_trials=2, budget_s=3600.0)
    assert any(dict(trial.apart).get("decode", 1.0) == pytest.approx(3.0) for trial in found.trials)
    assert any("decode of the same settings varied by a factor of 3.0" in note for note in found.notes)
    assert found.learned is not None and found.learned.decode_ratio is None


@pytest.mark.parametrize(
    ("n_ctx", "words"), [(8192, "of 8,112 tokens, the whole context,"), (16384, "past 8,192 tokens")]
)
def test_what_was_not_looked_at_is_what_the_context_holds(run: Verify, n_ctx: int, words: str) -> None:
    plan = solved(ENGINE_MACHINE, n_ctx=n_ctx)
    found = run(plan, as_predicted(plan), willing, max_trials=0, budget_s=0.0)
    assert f"no prompt {words} was looked at (" in found.reason and found.at == found.depth


@pytest.mark.parametrize(
    ("serve", "own", "taken", "asked"),
    [
        (True, None, False, [8080]),
        (True, None, True, [8080, 50000]),
        (False, None, False, [50000]),
        (True, 9000, True, [9000]),
    ],
)
def test_it_serves_at_the_port_of_the_plan_if_that_is_free(
    host: Host, monkeypatch: pytest.MonkeyPatch, serve: bool, own: int | None, taken: bool, asked: list[int]
) -> None:
    plan = solved(ENGINE_MACHINE)
    tried: list[int] = []

    def opened(host: Host, argv: tuple[str, ...], at: Address, *rest: object) -> FakeSession | Down:
        tried.append(at.port)
        assert argv[argv.index("--port") + 1] == str(at.port)
        if taken and at.port != 50000:
            return Down(Cause(Why.PORT, f"port {at.port} is taken"))
        return FakeSession(plan.chosen.settings, as_predicted(plan), url=f"http://127.0.0.1:{at.port}")

    monkeypatch.setattr("probes.server.open_server", opened)
    monkeypatch.setattr("probes.ports.free_port", lambda: 50000)
    engine = Engine(host, plan, priced(plan), Own(own), serve=serve)
    found = engine._open(plan.chosen, lambda pid: lambda reading: "")
    assert tried == asked and isinstance(found, Trouble) is (own is not None)
    assert bool(engine.taken) is taken


def test_another_port_than_the_plans_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = solved(ENGINE_MACHINE)

    def opened(self: Engine, candidate: Candidate, begun: Callable[[int], Tick]) -> FakeSession:
        begun(os.getpid())
        self.taken = "port 8080 is taken"
        return FakeSession(candidate.settings, as_predicted(plan))

    monkeypatch.setattr(Engine, "_open", opened)
    with verified(host, plan, priced(plan), Options(max_trials=0, serve=True), Heard()) as running:
        assert "port 8080 is taken, so it serves at http://127.0.0.1:1; -- --port N takes another" in (
            running.verification.notes
        )
