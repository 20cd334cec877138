import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from planner import units
from planner.cost.model import CostModel
from planner.errors import OptionError, PolicyError
from planner.facts.machine import Engine, Gpu, Os, Overflow, Ram
from planner.facts.outcome import ProbeReport
from planner.facts.reading import Source
from planner.facts.workload import Target, Workload
from planner.gguf.analyze import analyze
from planner.plans.decision import Confidence, Decision, Evidence, RuleDoc
from planner.plans.memory import total
from planner.plans.plan import Verdict
from planner.plans.rule import Problem, Proposal, Rule
from planner.plans.settings import Tool
from planner.plans.speed import Band
from planner.search import judge, plan
from planner.search.exchange import difference
from planner.units import GIB
from policies import RULES
from tests.policies.problems import big_model, card, decision, machine, problem, solved, windows


def test_the_same_problem_gives_the_same_plan() -> None:
    assert solved(machine(card(6))) == solved(machine(card(6)))


def test_the_order_of_tensors_does_not_matter() -> None:
    model = big_model()
    shuffled = replace(model, tensors=model.tensors[::-1])
    assert solved(machine(card(6)), model).chosen.settings == solved(machine(card(6)), shuffled).chosen.settings


def test_a_pin_is_kept_and_said() -> None:
    result = solved(machine(card(6)), pins=(("n_ubatch", "1024"), ("load_mode", "mmap")))
    assert result.chosen.settings.n_ubatch == 1024
    assert result.chosen.settings.load_mode == "mmap"
    assert decision(result, "n_ubatch").headline.startswith("pinned by you")


def test_an_impossible_pin_is_refused_by_name_with_the_plan_without_it() -> None:
    result = solved(machine(card(4)), pins=(("n_cpu_moe", "0"), ("n_gpu_layers", "25")))
    assert result.verdict is Verdict.REFUSED
    assert result.refusal is not None
    assert "n_cpu_moe=0" in result.refusal.reason
    (short,) = result.refusal.shortfalls
    assert short.device == "CUDA0"
    assert short.needed_bytes > short.available_bytes
    assert result.refusal.nearest is not None
    assert not result.refusal.nearest.shortfalls


@pytest.mark.parametrize("pin", [("n_cpu_mo", "3"), ("n_cpu_moe", "many"), ("op_offload", "perhaps"), ("type_k", "")])
def test_a_pin_that_is_none_is_an_option_error(pin: tuple[str, str]) -> None:
    with pytest.raises(OptionError):
        solved(machine(card(4)), pins=(pin,))


def test_a_context_that_fits_nowhere_is_refused_with_the_longest_half_that_does() -> None:
    small = machine(card(3), ram=Ram(16 * GIB, 12 * GIB, overflow=Overflow.KILL))
    result = solved(small, n_ctx=8_000_000)
    assert result.refusal is not None
    assert {s.device for s in result.refusal.shortfalls} <= {"host", "CUDA0"}
    assert result.refusal.nearest is not None
    assert result.refusal.nearest.settings.n_ctx < 8_000_000
    assert "with a context of" in result.refusal.reason
    assert result.decisions == ()


def test_larger_than_ram_pages_and_says_so() -> None:
    result = solved(machine(card(4), ram=Ram(6 * GIB, 5 * GIB, overflow=Overflow.SWAP)))
    assert result.verdict is Verdict.PAGES
    assert "pages" in [c.code for c in result.cautions]
    assert result.chosen.speed.decode_tps.mid < solved(machine(card(4))).chosen.speed.decode_tps.mid
    held, mapped = result.chosen.memory.host.resident
    assert 0 <= held < mapped
    for item in result.decisions:
        assert "evictable" not in item.headline and "RAM anyway" not in item.headline, item.headline
        if item.setting in ("n_cpu_moe", "load_mode"):
            assert f"RAM holds {units.size(held)} of {units.size(mapped)}" in item.headline


def test_a_target_without_single_tensors_gets_whole_blocks() -> None:
    """``test_placement`` holds that the same card gets an override for llama.cpp."""
    for eighths in range(40, 50):
        settings = solved(machine(card(eighths / 8)), target=Target.BIGMOE).chosen.settings
        assert settings.override_tensor == ()


def test_budget_overrides_stand_in_for_what_is_free() -> None:
    wide, narrow = solved(machine(card(20))), solved(machine(card(20)), vram_bytes=(("CUDA0", 6 * GIB),))
    assert narrow.chosen.settings.n_cpu_moe > wide.chosen.settings.n_cpu_moe
    assert narrow.chosen.settings.n_cpu_moe == solved(machine(card(6))).chosen.settings.n_cpu_moe
    assert solved(machine(card(20)), ram_bytes=5 * GIB).chosen.memory.host.available_bytes == 5 * GIB


def test_assumed_rates_are_named() -> None:
    (said,) = [c for c in solved(machine(card(6))).cautions if c.code == "rates-assumed"]
    assert "RAM 50 GB/s" in said.message


def test_assumed_rates_where_no_engine_is_say_what_would_help() -> None:
    engines = (None, Engine("llama.cpp", 11549, server="/x/llama-server"))
    for engine in engines:
        found = solved(replace(machine(card(6)), engine=engine)).cautions
        (said,) = [c.message for c in found if c.code == "rates-assumed"]
        assert ("--llama FOLDER names it" in said) == (engine is None)


def test_one_layer_is_no_layers() -> None:
    chosen = solved(machine(card(6))).chosen
    for layers, words in ((1, "1 expert layer more in RAM"), (2, "2 expert layers more in RAM")):
        moved = replace(chosen.settings, n_cpu_moe=chosen.settings.n_cpu_moe + layers)
        assert words in difference(replace(chosen, settings=moved), chosen)


def test_exchange_rates_price_context_and_ubatch() -> None:
    rows = {e.change: e.effect for e in solved(machine(card(6)), n_ctx=8192).exchange}
    assert "in RAM" in rows["n_ctx 16,384"]
    assert "decode" in rows["n_ctx 16,384"]


def test_a_step_that_changes_nothing_is_not_listed() -> None:
    chosen = solved(machine(card(6)), n_ctx=8192).chosen
    assert difference(chosen, chosen) == ""
    faster = replace(chosen.speed, decode_tps=Band(1.0, 1.1 * chosen.speed.decode_tps.mid, 1e9))
    assert difference(replace(chosen, speed=faster), chosen) == "prefill +0%, decode +10%"


def test_a_rule_that_lies_is_named() -> None:
    doc = RuleDoc("liar", "", ("n_ubatch",), "", "", (), "")
    said = Decision("liar", "n_ubatch", 7, "7", Confidence.ASSUMED, (Evidence("none", 0, "tokens", Source.ASSUMED),))
    liar = Rule(doc, lambda *_: Proposal(), lambda *_: (said,))
    with pytest.raises(PolicyError, match="liar"):
        plan(problem(machine(card(6))), (*RULES, liar))


def test_user_settings_are_judged_by_the_same_rule() -> None:
    given = problem(machine(card(6)))
    good = plan(given, RULES).chosen.settings
    assert judge(given, RULES, good, Tool.SERVER).verdict is Verdict.FITS
    bad = judge(given, RULES, replace(good, n_cpu_moe=0, override_tensor=()), Tool.SERVER)
    assert bad.verdict is Verdict.REFUSED
    assert bad.refusal is not None
    assert bad.refusal.nearest is not None
    assert bad.lint == ()


@pytest.mark.parametrize(
    "pins",
    [
        (("n_gpu_layers", "-1"),),
        (("n_ubatch", "0"),),
        (("devices", "CUDA7"),),
        (("devices", "CUDA0,CUDA0"),),
        (("tensor_split", "nan"),),
        (("override_tensor", "junk"),),
        (("override_tensor", "(.+)+!=CPU"),),
        (("spec_type", "junk"),),
        (("type_k", "q9"),),
        (("n_ubatch", "512"), ("n_ubatch", "1024")),
    ],
)
def test_a_pin_that_cannot_be_is_an_option_error(pins: tuple[tuple[str, str], ...]) -> None:
    with pytest.raises(OptionError):
        solved(machine(card(4)), pins=pins)


@pytest.mark.parametrize(
    ("gpus", "pins", "says"),
    [
        ((), (("n_gpu_layers", "99"),), "expected 0, as there is no device to put layers on, found 99"),
        ((card(1),), (("n_gpu_layers", "1"),), "expected 0, as there is no device to put layers on, found 1"),
        ((card(4),), (("n_gpu_layers", "1"), ("devices", "none")), "there is no device to put layers on"),
        ((), (("devices", "CUDA0"),), "expected none, as no device was found, found 'CUDA0'"),
        ((card(4),), (("devices", "CUDA7"),), "expected none or some of CUDA0, each once, found 'CUDA7'"),
        ((), (("threads", "２"),), "expected a whole number"),
        ((card(4),), (("tensor_split", "２"),), "expected numbers with commas between them"),
    ],
)
def test_a_pin_without_a_device_or_of_other_digits_is_said(
    gpus: tuple[Gpu, ...], pins: tuple[tuple[str, str], ...], says: str
) -> None:
    given = problem(machine(*gpus), pins=pins)
    settings = plan(replace(given, workload=replace(given.workload, pins=())), RULES).chosen.settings
    for ask in (lambda: plan(given, RULES), lambda: judge(given, RULES, settings, Tool.SERVER)):
        with pytest.raises(OptionError, match=re.escape(says)):
            ask()


def test_ram_that_is_not_known_to_be_free_is_taken_as_its_total() -> None:
    unknown = machine(card(4), ram=Ram(6 * GIB, None))
    assert solved(unknown).verdict is Verdict.PAGES


def test_a_card_on_windows_without_a_driver_model_counts_as_wddm() -> None:
    result = solved(machine(card(6), os=Os.WINDOWS), headroom_bytes=0)
    assert result.chosen.memory.devices[0].headroom_bytes >= GIB


def test_a_plan_stands_on_its_whole_graph(zoo: Callable[[str], Path]) -> None:
    """The search leaves repeated blocks out; what it answers is priced with all of them."""
    model = analyze(str(zoo("deepseek-v3.2")))
    found = plan(Problem(windows(card(15)), model, Workload(n_ctx=16384)), RULES)
    whole = CostModel(model, found.machine).memory(found.chosen.settings)
    assert [total(d.compute) for d in found.chosen.memory.devices] == [total(d.compute) for d in whole.devices]
    assert not found.chosen.shortfalls


SWITCHES = ({"kv_unified": True}, {"swa_full": True}, {"kv_offload": False}, {"no_host": True})


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: next(iter(switch)))
def test_the_nearest_plan_keeps_slots_and_switches_of_the_user(switch: dict[str, bool]) -> None:
    given = problem(machine(card(6)))
    asked = replace(plan(given, RULES).chosen.settings, n_cpu_moe=0, override_tensor=(), n_parallel=4, n_ctx=16384)
    for wanted in (replace(asked, **switch), asked):
        found = judge(given, RULES, wanted, Tool.SERVER)
        assert found.refusal is not None and found.refusal.nearest is not None
        nearest = found.refusal.nearest
        assert nearest.runs
        for name in ("n_ctx", "n_parallel", *switch):
            assert getattr(nearest.settings, name) == getattr(wanted, name), name


def test_a_pin_beside_check_counts_more_than_the_flag() -> None:
    given = problem(machine(card(6)), pins=(("kv_unified", "off"),))
    asked = replace(plan(given, RULES).chosen.settings, n_cpu_moe=0, override_tensor=(), n_parallel=4, kv_unified=True)
    found = judge(given, RULES, asked, Tool.SERVER)
    assert found.refusal is not None and found.refusal.nearest is not None
    assert found.refusal.nearest.settings.kv_unified is False


def test_what_fits_only_without_the_switches_is_still_found() -> None:
    """A cache of 256K tokens in RAM that is not there: the request as it was made is planned instead."""
    given = problem(machine(card(20), ram=Ram(8 * GIB, 6 * GIB, overflow=Overflow.KILL)))
    asked = replace(plan(given, RULES).chosen.settings, n_ctx=1 << 20, n_parallel=4, kv_offload=False)
    found = judge(given, RULES, asked, Tool.SERVER)
    assert found.refusal is not None and found.refusal.nearest is not None
    assert found.refusal.nearest.settings.kv_offload is True


def test_the_nearest_plan_stands_on_its_whole_graph(zoo: Callable[[str], Path]) -> None:
    model = analyze(str(zoo("deepseek-v3.2")))
    given = Problem(windows(card(15)), model, Workload(n_ctx=16384))
    asked = replace(plan(given, RULES).chosen.settings, n_cpu_moe=0, override_tensor=())
    found = judge(given, RULES, asked, Tool.SERVER)
    assert found.refusal is not None and found.refusal.nearest is not None
    assert judge(given, RULES, found.refusal.nearest.settings, Tool.SERVER).refusal is None


def test_a_layer_probe_that_failed_is_named_with_how_to_repeat_it() -> None:
    lost = ProbeReport("layer-rate", "failed", "layer (CPU) left out: did not end within 21.5 s", 38.5)
    result = solved(replace(machine(card(8)), probes=(lost,)))
    (said,) = [item.message for item in result.cautions if item.code == "layer-unmeasured"]
    assert "did not end within 21.5 s" in said and said.endswith("moeplan probe MODEL --refresh.")
    for report in (replace(lost, status="found"), replace(lost, name="ram-rate")):
        found = solved(replace(machine(card(8)), probes=(report,)))
        assert all(item.code != "layer-unmeasured" for item in found.cautions)
