from __future__ import annotations

from dataclasses import replace

import pytest

from emit import argv
from emit.flag_table import BIGMOE_FLAGS, FLAGS, IK_FLAGS
from planner.errors import EngineError, TargetError
from planner.facts.machine import Overflow
from planner.facts.workload import Target, Workload
from planner.plans.plan import Plan, Verdict
from planner.plans.settings import FlashAttn, LoadMode, SplitMode
from planner.units import GIB
from tests.builders import make_gpu, make_machine, make_model, make_settings
from tests.emit.plans import make_plan, measured_machine

IK = Workload(target=Target.IK)
BIGMOE = Workload(target=Target.BIGMOE)


def plan_of(work: Workload, **settings: object) -> Plan:
    base = make_settings(n_gpu_layers=5, n_cpu_moe=2, flash_attn=FlashAttn.ON, cache_ram_mib=8192)
    return make_plan(settings=replace(base, **settings), workload=work)  # type: ignore[arg-type]


def test_ik_names_the_blocks_and_leaves_fit_alone() -> None:
    blocks = r"-ot blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"
    assert " ".join(argv.argv(plan_of(IK))) == (
        f"llama-server -m model.gguf -c 4096 -np 1 -ngl 5 {blocks} -b 2048 -ub 512 -ctk f16 -ctv f16 -fa on --no-mmap "
        "-cram 8192 --host 127.0.0.1 --port 8080"
    )
    assert "-ot" not in argv.argv(plan_of(IK, n_cpu_moe=0))


def test_what_places_no_single_tensors_is_the_same_in_rules_and_tables() -> None:
    rows = {Target.IK: IK_FLAGS, Target.BIGMOE: BIGMOE_FLAGS}
    for target, table in rows.items():
        row = next(row for row in table if row.setting == "override_tensor")
        assert bool(row.names) == target.takes_tensors


def test_a_refusal_names_overrides_as_they_are_written() -> None:
    with pytest.raises(TargetError, match=r"found blk\\\.2=CPU ") as caught:
        argv.argv(plan_of(BIGMOE, override_tensor=(("blk\\.2", "CPU"),)))
    assert caught.value.exit_code == 1


def test_ik_repacks_only_where_no_gpu_copies() -> None:
    cpu = {"devices": (), "n_gpu_layers": 0, "n_cpu_moe": 0}
    assert "-rtr" in argv.argv(plan_of(IK, **cpu))
    assert "-rtr" not in argv.argv(plan_of(IK, load_mode=LoadMode.MMAP, **cpu))
    assert "-rtr" not in argv.argv(plan_of(IK, repack=False, **cpu))
    assert "-rtr" not in argv.argv(plan_of(IK))


def test_ik_switches_and_several_cards() -> None:
    two = make_machine(make_gpu(), make_gpu("CUDA1"))
    plan = plan_of(IK)
    settings = replace(plan.chosen.settings, devices=("CUDA0", "CUDA1"), tensor_split=(3.0, 1.0), op_offload=False)
    words = " ".join(argv.argv(make_plan(machine=two, settings=settings, workload=IK)))
    assert "-dev CUDA0,CUDA1" in words and "-sm layer -ts 3,1" in words and "-op -1,0" in words
    assert "-sm" not in argv.argv(plan)
    assert "-nkvo" in argv.argv(plan_of(IK, kv_offload=False))
    assert argv.argv(plan_of(IK, load_mode=LoadMode.MMAP_MLOCK)).count("--mlock") == 1


@pytest.mark.parametrize(
    ("work", "setting", "value", "says"),
    [
        (IK, "load_mode", LoadMode.DIO, "no direct I/O"),
        (IK, "moe_cache_mib", 64, "name no flag"),
        (IK, "type_k", "q4_0", "GGML_IQK_FA_ALL_QUANTS"),
        (IK, "swa_full", True, "name no flag"),
        (IK, "spec_type", "draft-mtp", "name no flag"),
        (BIGMOE, "n_parallel", 2, "one at a time"),
        (BIGMOE, "type_k", "q8_0", "name no flag"),
        (BIGMOE, "load_mode", LoadMode.MLOCK, "locks no memory"),
        (BIGMOE, "kv_offload", False, "name no flag"),
        (BIGMOE, "override_tensor", (("a", "CPU"),), "name no flag"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_with_its_name(
    work: Workload, setting: str, value: object, says: str
) -> None:
    with pytest.raises(EngineError, match=says) as caught:
        argv.argv(plan_of(work, **{setting: value}))
    assert work.target.value in str(caught.value)


def test_several_cards_cannot_be_split_by_row_or_in_bigmoe() -> None:
    two = make_machine(make_gpu(), make_gpu("CUDA1"))
    settings = make_settings(devices=("CUDA0", "CUDA1"), split_mode=SplitMode.ROW, tensor_split=(1.0, 1.0))
    for work, says in ((IK, "whole layers"), (BIGMOE, "no split")):
        with pytest.raises(EngineError, match=says):
            argv.argv(make_plan(machine=two, settings=settings, workload=work))
    with pytest.raises(EngineError, match="all devices or none"):
        argv.argv(make_plan(machine=two, workload=BIGMOE))


def test_every_setting_of_another_engine_is_one_of_llama_cpp_or_its_own() -> None:
    from emit.flag_table import BIGMOE_FLAGS, IK_FLAGS

    own = {"run_time_repack", "moe_stream", "stream_cache_mib", "dense_weights", "cpu_only", "chatml", "session"}
    left = {"fit", "ctx_checkpoints"}
    known = {row.setting for row in FLAGS}
    assert {row.setting for row in IK_FLAGS} - own == known - left - {"repack"}, "-rtr says it"
    bigmoe = {row.setting for row in BIGMOE_FLAGS} - own
    assert known - bigmoe == left | {"devices", "split_mode", "n_batch", "flash_attn", "cache_ram_mib", "host", "port"}


def test_bigmoe_is_llama_cpp_where_the_model_fits() -> None:
    assert " ".join(argv.argv(plan_of(BIGMOE))) == (
        "bmoe-cli -m model.gguf -c 4096 --ubatch 512 --gpu-layers 5 --tensor-overrides "
        r"blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch|)exps --chatml --session"
    )
    cpu = argv.argv(plan_of(BIGMOE, devices=(), n_gpu_layers=0, n_cpu_moe=0))
    assert " ".join(cpu[5:]) == "--ubatch 512 --devices cpu --gpu-layers 0 --chatml --session"


def test_bigmoe_streams_where_it_does_not() -> None:
    plan = plan_of(BIGMOE, n_cpu_moe=4)
    expert = replace(plan.chosen.memory.host.model[0], n_bytes=30 * GIB)
    memory = replace(plan.chosen.memory, host=replace(plan.chosen.memory.host, model=(expert,)))
    machine = measured_machine()
    machine = replace(machine, ram=replace(machine.ram, available_bytes=20 * GIB, overflow=Overflow.SWAP))
    paging = replace(plan, machine=machine, chosen=replace(plan.chosen, memory=memory, verdict=Verdict.PAGES))
    words = argv.argv(paging)
    cache = (20 * 1024 * 96 // 100) - 64
    assert words[3:8] == ("--moe-stream", "--cache-mb", str(cache), "--dense-weights", "anon")
    plain = replace(paging.chosen, settings=replace(paging.chosen.settings, repack=False))
    assert argv.argv(replace(paging, chosen=plain)) == words
    with pytest.raises(EngineError, match="-nr: expected on"):
        argv.argv(replace(paging, chosen=replace(plain, verdict=Verdict.FITS)))
    with pytest.raises(EngineError, match="--list-archs"):
        argv.argv(replace(paging, model=make_model(arch="mystery")))


def test_what_is_assumed_is_said() -> None:
    for work in (IK, BIGMOE):
        assert {item.code for item in argv.cautions(plan_of(work))} == {"example", "target-assumed"}
