from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emit.flag_parse import rewritten
from emit.flags import parse_argv, spell
from planner.errors import OptionError
from planner.facts.machine import Backend, Engine
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode, Tool
from tests.builders import make_gpu, make_machine, make_model

MODEL = make_model()
ONE = make_machine(make_gpu(), engine=Engine("llama.cpp", 11549))
TWO = make_machine(make_gpu(), make_gpu("CUDA1"), engine=Engine("llama.cpp", 11549))


def settings_of(line: str, tool: Tool = Tool.SERVER, machine: Any = ONE, build: int | None = None) -> Settings:
    return parse_argv(tuple(line.split()), MODEL, machine, tool, build=build).settings


def test_what_llama_server_does_without_flags() -> None:
    parsed = parse_argv(("llama-server", "-m", "x.gguf"), MODEL, ONE)
    assert parsed.settings == Settings(n_ctx=32768, n_gpu_layers=5, n_parallel=4, kv_unified=True, devices=("CUDA0",))
    assert (parsed.model_path, parsed.fit, parsed.unknown) == ("x.gguf", None, ())
    assert parsed.given == (("-m", "x.gguf"),)


def test_what_other_tools_do_without_flags() -> None:
    assert settings_of("", Tool.COMPLETION).n_parallel == 1
    bench = settings_of("llama-bench", Tool.BENCH)
    assert (bench.n_ctx, bench.n_parallel, bench.kv_unified, bench.flash_attn) == (512, 1, False, FlashAttn.AUTO)


def test_what_old_builds_do_without_flags() -> None:
    old = settings_of("", build=6000)
    assert (old.n_gpu_layers, old.flash_attn, old.n_parallel) == (0, FlashAttn.OFF, 1)


@pytest.mark.parametrize(
    ("line", "changes"),
    [
        ("-c 0", {"n_ctx": 32768}),
        ("--ctx-size 1000", {"n_ctx": 1000}),
        ("--ctx_size 1024", {"n_ctx": 1024}),
        ("-ub 0 -b 1024", {"n_ubatch": 1024, "n_batch": 1024}),
        ("-np 2", {"n_parallel": 2, "kv_unified": False}),
        ("-np 2 -kvu", {"n_parallel": 2, "kv_unified": True}),
        ("-np -1", {"n_parallel": 4, "kv_unified": True}),
        ("--kv-unified-per-slot 512", {"n_ctx": 2048}),
        ("--kv-unified-per-slot 512 -c 4096", {"n_ctx": 4096}),
        ("-ngl all", {"n_gpu_layers": 5}),
        ("--gpu-layers auto", {"n_gpu_layers": 5}),
        ("-ngl 999", {"n_gpu_layers": 5}),
        ("-ngl 3", {"n_gpu_layers": 3}),
        ("-dev none -ngl 99", {"devices": (), "n_gpu_layers": 0}),
        ("-ncmoe 999", {"n_cpu_moe": 4}),
        ("-cmoe", {"n_cpu_moe": 4}),
        ("-ncmoe 1 -ncmoe 3", {"n_cpu_moe": 3}),
        ("-ot exps=CPU", {"override_tensor": (("exps", "CPU"),)}),
        ("-ot a=CPU -ot b=CUDA0", {"override_tensor": (("a", "CPU"), ("b", "CUDA0"))}),
        ("-ot a=CPU -ncmoe 2", {"override_tensor": (("a", "CPU"),), "n_cpu_moe": 2}),
        ("-ncffn 1", {"override_tensor": ((r"blk\.0\.ffn_(up|down|gate)\.", "CPU"),)}),
        ("-fa", {"flash_attn": FlashAttn.ON}),
        ("-fa 1 -ub 64", {"flash_attn": FlashAttn.ON, "n_ubatch": 64}),
        ("-fa --ubatch-size 64", {"flash_attn": FlashAttn.ON, "n_ubatch": 64}),
        ("--flash-attn off", {"flash_attn": FlashAttn.OFF}),
        ("--no-mmap", {"load_mode": LoadMode.NONE}),
        ("--mlock", {"load_mode": LoadMode.MMAP_MLOCK}),
        ("--no-mmap --mlock", {"load_mode": LoadMode.MLOCK}),
        ("--direct-io", {"load_mode": LoadMode.DIO}),
        ("-lm auto", {"load_mode": LoadMode.MMAP}),
        ("--load-mode mlock", {"load_mode": LoadMode.MLOCK}),
        ("-t 0", {"threads": None}),
        ("-t 7 -tb 9", {"threads": 7, "threads_batch": 9}),
        ("--no-op-offload -nkvo -nr --no-host --swa-full", {
            "op_offload": False, "kv_offload": False, "repack": False, "no_host": True, "swa_full": True}),
        ("-cram -1 -ctxcp 4", {"cache_ram_mib": -1, "ctx_checkpoints": 4}),
        ("--spec-type none", {"spec_type": None}),
        ("--spec-type draft-mtp --spec-draft-n-max 2", {"spec_type": "draft-mtp"}),
        ("--moe-cache-mib 64", {"moe_cache_mib": 64}),
        ("--temp 0.7 --alias x --metrics --jinja -n -1", {}),
        ("env LLAMA_ARG_CTX_SIZE=2048 llama-server", {"n_ctx": 2048}),
        ("LLAMA_ARG_NO_MMAP=1 LLAMA_ARG_FLASH_ATTN=on CUDA_VISIBLE_DEVICES=0 /opt/llama-server -c 512", {
            "load_mode": LoadMode.NONE, "flash_attn": FlashAttn.ON, "n_ctx": 512}),
        ("LLAMA_ARG_CTX_SIZE=2048 llama-server -c 4096", {"n_ctx": 4096}),
        ("C:\\llama\\llama-server.exe -c 512", {"n_ctx": 512}),
    ],
)  # fmt: skip
def test_one_flag(line: str, changes: dict[str, Any]) -> None:
    base = settings_of("")
    assert settings_of(line) == replace(base, **changes)


def test_n_cpu_moe_before_an_override_keeps_its_place() -> None:
    parsed = settings_of("-ncmoe 1 -ot exps=CUDA0")
    expected = ((r"blk\.0\.ffn_(up|down|gate|gate_up)_(ch|)exps", "CPU"), ("exps", "CUDA0"))
    assert (parsed.override_tensor, parsed.n_cpu_moe) == (expected, 0)


def test_several_devices() -> None:
    assert settings_of("", machine=TWO).devices == ("CUDA0", "CUDA1")
    assert settings_of("-ts 3,1", machine=TWO).tensor_split == (3.0, 1.0)
    assert settings_of("-ts 3/1", machine=TWO).tensor_split == (3.0, 1.0)
    assert settings_of("-ts 3", machine=TWO).tensor_split == (3.0, 0.0)
    assert settings_of("-ts 0,0", machine=TWO).tensor_split == ()
    assert settings_of("-dev CUDA1 -ts 3,1", machine=TWO).tensor_split == ()
    main = settings_of("-sm none -mg 1", machine=TWO)
    assert (main.devices, main.split_mode) == (("CUDA1",), SplitMode.NONE)


def test_default_devices_are_llama_cpps() -> None:
    igpu, rpc = make_gpu("Vulkan0", unified=True), make_gpu("RPC0", backend=Backend.RPC)
    machine = make_machine(make_gpu(), igpu, rpc)
    assert settings_of("", machine=machine).devices == ("CUDA0",)
    assert settings_of("--rpc h:1", machine=machine).devices == ("RPC0", "CUDA0")
    assert settings_of("", machine=make_machine(igpu)).devices == ("Vulkan0",)


@pytest.mark.parametrize(
    ("line", "n_ctx"),
    [("-p 4096 -n 32", 4096), ("-p 0 -n 64", 64), ("-p 512,1024 -d 100,2000", 3024), ("-p 512-4096*2", 4096),
     ("-p 16-640+16", 640), ("-pg 1000,24", 1024), ("-pg 1,2 -p 8 -n 0", 8)],
)  # fmt: skip
def test_bench_context_is_its_largest_test(line: str, n_ctx: int) -> None:
    assert settings_of(line, Tool.BENCH).n_ctx == n_ctx


def test_bench_separators_and_switches() -> None:
    parsed = settings_of(
        "-dev CUDA0/CUDA1 -ts 3/1 -ot a=CPU;b=CUDA1 -nopo 1 -nkvo 0 --repack 0 -mmp 0 -fa 1",
        Tool.BENCH,
        TWO,
    )
    assert parsed.devices == ("CUDA0", "CUDA1") and parsed.tensor_split == (3.0, 1.0)
    assert parsed.override_tensor == (("a", "CPU"), ("b", "CUDA1"))
    assert (parsed.op_offload, parsed.kv_offload, parsed.repack) == (False, True, False)
    assert (parsed.load_mode, parsed.flash_attn) == (LoadMode.NONE, FlashAttn.ON)


@pytest.mark.parametrize(
    ("line", "flag", "expected"),
    [
        ("-ub x", "-ub", "whole number"),
        ("-c ２", "-c", "whole number"),
        ("-ngl ２", "-ngl", "whole number"),
        ("-ts ２,1", "-ts", "numbers"),
        ("-ub", "-ub", "a value"),
        ("-c -5", "-c", "0 or more"),
        ("-b 0", "-b", "1 or more"),
        ("-c 99999999999999999999", "-c", "whole number"),
        ("-ngl many", "-ngl", "auto or all"),
        ("-ngl 1234567890", "-ngl", "auto or all"),
        ("-fa maybe", "-fa", "on off auto"),
        ("-ctk q9", "-ctk", "q8_0"),
        ("-lm fast", "-lm", "mmap"),
        ("-sm diagonal", "-sm", "layer"),
        ("-ts a,b", "-ts", "numbers"),
        ("-ot exps", "-ot", "REGEX=BUFFER"),
        ("-ot (=CPU", "-ot", "a regular expression"),
        ("-ot exps=CUDA7", "-ot", "CUDA0"),
        ("-ot exps=CUDA_Host", "-ot", "CUDA0"),
        ("-dev CUDA7", "-dev", "CUDA0"),
        ("-sm none -mg 3", "-mg", "below 1"),
        ("-np 0", "-np", "slots"),
        ("--ctx-size=4096", "--ctx-size", "next word"),
        ("-c 4096 oops", "oops", "a flag"),
        ("llama-bench -p 1", "llama-bench", "llama-server"),
    ],
)
def test_a_wrong_value_is_named(line: str, flag: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        settings_of(line)
    assert flag in caught.value.subject and expected in caught.value.expected


def test_all_problems_on_one_screen() -> None:
    with pytest.raises(OptionError) as caught:
        settings_of("-ub x -ngl y -ctk z")
    assert all(flag in str(caught.value) for flag in ("-ub", "-ngl", "-ctk")) and caught.value.exit_code == 2


def test_bench_takes_one_configuration() -> None:
    with pytest.raises(OptionError, match="one configuration"):
        settings_of("-ub 512,1024", Tool.BENCH)


def test_unknown_flags_are_kept_with_their_value() -> None:
    parsed = parse_argv(("--frobnicate", "7", "-zz", "-c", "512"), MODEL, ONE)
    assert parsed.unknown == ("--frobnicate", "-zz")
    assert parsed.given == (("--frobnicate", "7"), ("-zz", ""), ("-c", "512"))
    assert parsed.settings.n_ctx == 512


def test_find_takes_the_last_of_a_setting() -> None:
    parsed = parse_argv(("-ub", "1", "--ubatch-size", "2", "-fit", "off"), MODEL, ONE)
    assert parsed.find("n_ubatch") == ("--ubatch-size", "2") and not parsed.has("n_batch")
    assert parsed.fit is False


REGEX = st.from_regex(r"blk\\\.[0-3]\\\.ffn_(up|down)_exps", fullmatch=True)
KV = st.sampled_from(["f16", "bf16", "q8_0", "q4_0", "iq4_nl"])


@st.composite
def settings(draw: st.DrawFn, machine: Any) -> Settings:
    names = tuple(gpu.id for gpu in machine.gpus)
    devices = draw(st.sampled_from([(), names[:1], names]))
    share = st.floats(0, 1e6, width=32)
    split = st.tuples(share, share).filter(any)
    return Settings(
        n_ctx=draw(st.integers(1, 1 << 20)),
        n_gpu_layers=draw(st.integers(0, 5)) if devices else 0,
        n_cpu_moe=draw(st.integers(0, 4)),
        override_tensor=tuple(draw(st.lists(st.tuples(REGEX, st.sampled_from(["CPU", *names])), max_size=3))),
        moe_cache_mib=draw(st.integers(0, 1 << 16)),
        n_ubatch=(ubatch := draw(st.integers(1, 8192))),
        n_batch=draw(st.integers(ubatch, 16384)),
        type_k=draw(KV),
        type_v=draw(KV),
        flash_attn=draw(st.sampled_from(FlashAttn)),
        n_parallel=draw(st.integers(1, 16)),
        load_mode=draw(st.sampled_from(LoadMode)),
        threads=draw(st.none() | st.integers(1, 64)),
        threads_batch=draw(st.none() | st.integers(1, 64)),
        tensor_split=draw(split) if len(devices) > 1 else (),
        devices=devices,
        op_offload=draw(st.booleans()),
        spec_type=draw(st.sampled_from([None, "draft-mtp", "draft-mtp,ngram-mod"])),
        kv_unified=draw(st.booleans()),
        swa_full=draw(st.booleans()),
        kv_offload=draw(st.booleans()),
        no_host=draw(st.booleans()),
        repack=draw(st.booleans()),
        split_mode=draw(st.sampled_from([SplitMode.LAYER, SplitMode.ROW])),
        cache_ram_mib=draw(st.integers(-1, 1 << 16)),
        ctx_checkpoints=draw(st.integers(0, 64)),
    )


@given(settings(TWO))
def test_what_is_spelled_reads_back_the_same(wanted: Settings) -> None:
    tokens = spell(wanted, MODEL, TWO)
    parsed = parse_argv(("llama-server", *tokens), MODEL, TWO)
    assert parsed.settings == wanted and parsed.unknown == () and parsed.model_path == MODEL.path


@given(settings(TWO))
def test_the_same_for_a_build_of_the_old_load_flags(wanted: Settings) -> None:
    wanted = replace(wanted, moe_cache_mib=0)
    parsed = parse_argv(spell(wanted, MODEL, TWO, build=10000), MODEL, TWO, build=10000)
    assert parsed.settings == wanted


@given(settings(TWO))
def test_the_same_for_llama_bench(wanted: Settings) -> None:
    plain = Settings(n_ctx=1, n_gpu_layers=1)
    for name in ("moe_cache_mib", "n_parallel", "threads_batch", "spec_type", "kv_unified", "swa_full",
                 "cache_ram_mib", "ctx_checkpoints"):  # fmt: skip
        wanted = replace(wanted, **{name: getattr(plain, name)})
    tokens = spell(wanted, MODEL, TWO, tool=Tool.BENCH)
    assert parse_argv(tokens, MODEL, TWO, Tool.BENCH).settings == wanted


@given(
    st.lists(st.text(max_size=12) | st.sampled_from(["-c", "-ot", "-ts", "-fa", "-ub", "--load-mode", "8"]), max_size=8)
)
def test_any_words_end_in_settings_or_one_error(words: list[str]) -> None:
    for tool in Tool:
        try:
            parse_argv(tuple(words), MODEL, ONE, tool)
        except OptionError as error:
            assert error.subject and error.found


def test_flags_written_in_place_of_those_of_the_same_setting() -> None:
    """``--n-cpu-moe`` twice is the larger one for llama.cpp; in place of the other it is the last."""
    words = ("LLAMA_ARG_UBATCH=64", "-ncmoe", "4", "--swa-full", "-c", "4096")
    parsed = parse_argv(words, MODEL, ONE)
    assert parse_argv((*words, "-ncmoe", "2"), MODEL, ONE).settings.n_cpu_moe == 4
    wanted = replace(parsed.settings, n_cpu_moe=2, n_ubatch=128)
    assert rewritten(parsed, ("--n-cpu-moe", "2", "-ub", "128"), MODEL, ONE) == wanted
    assert rewritten(parsed, ("-c", "many"), MODEL, ONE) is None
    assert rewritten(parsed, ("-np", "0"), MODEL, ONE) is None
