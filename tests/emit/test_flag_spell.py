from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from emit.dialect import Dialect
from emit.flag_spell import absent, flag_of, setting_of, spell, spelled
from emit.flag_table import FLAGS, READ_ONLY, spellings
from planner.errors import EngineError
from planner.facts.machine import Engine
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode, Tool
from tests.builders import make_gpu, make_machine, make_model, make_settings

MODEL = make_model()
MACHINE = make_machine(make_gpu(), engine=Engine("llama.cpp", 11549, ("cuda",)))
HELP = Path(__file__).parent / "help"


def one(settings: Settings, build: int | None = None, tool: Tool = Tool.SERVER) -> list[str]:
    return list(spell(settings, MODEL, MACHINE, build=build, tool=tool))


def after(tokens: list[str], flag: str) -> str:
    return tokens[tokens.index(flag) + 1]


def test_a_whole_command() -> None:
    settings = make_settings(n_gpu_layers=5, n_cpu_moe=2, n_ubatch=4096, flash_attn=FlashAttn.ON)
    start = "-m model.gguf -fit off -c 4096 -np 1 -ngl 5 --n-cpu-moe 2 -b 4096 -ub 4096 -ctk f16 -ctv f16 -fa on"
    assert (
        " ".join(one(settings)) == f"{start} --load-mode none -cram 0 --ctx-checkpoints 0 --host 127.0.0.1 --port 8080"
    )


@pytest.mark.parametrize("scheme", ["https", "http", "HTTPS"])
def test_a_url_is_downloaded_by_llama_cpp(scheme: str) -> None:
    url = f"{scheme}://example.org/model.gguf"
    tokens = spell(make_settings(), replace(MODEL, path=url), MACHINE)
    assert tokens[:2] == ("-mu", url) and "-m" not in tokens
    with pytest.raises(EngineError, match="must be downloaded first"):
        spell(make_settings(), replace(MODEL, path=url), MACHINE, tool=Tool.BENCH)


def test_zero_host_experts_are_printed_for_experts_only() -> None:
    assert after(one(make_settings()), "--n-cpu-moe") == "0"
    dense = replace(MODEL, tensors=MODEL.tensors[:2])
    assert "--n-cpu-moe" not in spell(make_settings(), dense, MACHINE)


def test_overrides_stand_before_n_cpu_moe_in_one_word() -> None:
    tokens = one(make_settings(override_tensor=(("a", "CPU"), ("b", "CUDA0")), n_cpu_moe=1))
    assert after(tokens, "-ot") == "a=CPU,b=CUDA0"
    assert tokens.index("-ot") < tokens.index("--n-cpu-moe")
    assert (
        after(one(make_settings(override_tensor=(("a", "CPU"), ("b", "CUDA0"))), tool=Tool.BENCH), "-ot")
        == "a=CPU;b=CUDA0"
    )


@pytest.mark.parametrize("pattern", ["a,b", "a=b"])
def test_a_regex_cannot_hold_what_ends_an_entry(pattern: str) -> None:
    with pytest.raises(EngineError, match="-ot"):
        one(make_settings(override_tensor=((pattern, "CPU"),)))


def test_devices_are_named_where_there_is_a_choice() -> None:
    two = make_machine(make_gpu(), make_gpu("CUDA1"))
    split = make_settings(devices=("CUDA0", "CUDA1"), tensor_split=(23.0, 1 / 3))
    tokens = list(spell(split, MODEL, two))
    assert after(tokens, "-dev") == "CUDA0,CUDA1"
    assert after(tokens, "-ts") == "23,0.3333333333333333"
    bench = list(spell(split, MODEL, two, tool=Tool.BENCH))
    assert (after(bench, "-dev"), after(bench, "-ts")) == ("CUDA0/CUDA1", "23/0.3333333333333333")
    assert after(list(spell(make_settings(), MODEL, two)), "-dev") == "CUDA0"
    assert after(list(spell(make_settings(devices=(), n_gpu_layers=0), MODEL, two)), "-dev") == "none"
    assert "-dev" not in one(make_settings())


@pytest.mark.parametrize(
    ("build", "mode", "expected"),
    [
        (10113, LoadMode.NONE, ["--no-mmap"]),
        (10113, LoadMode.MMAP, []),
        (10113, LoadMode.MLOCK, ["--no-mmap", "--mlock"]),
        (10113, LoadMode.MMAP_MLOCK, ["--mlock"]),
        (10113, LoadMode.DIO, ["--direct-io"]),
        (10114, LoadMode.NONE, ["--load-mode", "none"]),
        (11549, LoadMode.MMAP_MLOCK, ["--load-mode", "mmap+mlock"]),
    ],
)
def test_load_mode_by_build(build: int, mode: LoadMode, expected: list[str]) -> None:
    found = spelled(make_settings(load_mode=mode), MODEL, MACHINE, build=build)
    assert [token for item in found if item.setting == "load_mode" for token in item.tokens] == expected


def test_an_old_build_gets_what_it_knows() -> None:
    tokens = one(make_settings(n_cpu_moe=2, flash_attn=FlashAttn.ON), build=6000)
    assert "-fit" not in tokens and "--n-cpu-moe" not in tokens
    assert after(tokens, "-ot") == r"blk\.(0|1)\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU"
    assert tokens[tokens.index("-fa") + 1].startswith("-"), "-fa was a switch"


def test_what_a_build_cannot_do_is_an_error_with_its_cost() -> None:
    with pytest.raises(EngineError) as caught:
        one(make_settings(moe_cache_mib=2048), build=11434)
    assert "--moe-cache-mib" in str(caught.value) and "b11434" in str(caught.value) and "b11505" in str(caught.value)
    assert "never cached" in caught.value.advice
    with pytest.raises(EngineError, match="flash-attn"):
        one(make_settings(flash_attn=FlashAttn.AUTO), build=6000)
    lenient = spelled(make_settings(moe_cache_mib=2048), MODEL, MACHINE, build=11434, lenient=True)
    assert "moe_cache_mib" not in {item.setting for item in lenient}


def test_the_engines_own_list_decides_over_its_number() -> None:
    listed = replace(MACHINE, engine=Engine("llama.cpp", 11434, flags=("--moe-cache-mib", "--model", "-fa")))
    settings = make_settings(moe_cache_mib=64, cache_ram_mib=8192, ctx_checkpoints=32, load_mode=LoadMode.MMAP)
    tokens = spell(settings, MODEL, listed)
    assert "--moe-cache-mib" in tokens and "-cram" not in tokens
    assert "4" not in spell(replace(settings, ctx_checkpoints=4), MODEL, listed)
    old = replace(listed, engine=Engine("llama.cpp", 11434, flags=("--swa-checkpoints", "--model", "-fa", "--fit")))
    assert after(spell(replace(settings, ctx_checkpoints=4, moe_cache_mib=0), MODEL, old), "--swa-checkpoints") == "4"
    part = replace(MACHINE, engine=Engine("llama.cpp", 11549, flags=("--moe-cache-mib",)))
    assert "-cram" in spell(make_settings(), MODEL, part), "a list without -m is not the whole list"


@pytest.mark.parametrize(
    ("build", "said"), [(6200, ()), (6400, ("--swa-checkpoints",)), (6730, ("--ctx-checkpoints",))]
)
def test_checkpoints_are_called_as_the_build_calls_them(build: int, said: tuple[str, ...]) -> None:
    settings = make_settings(ctx_checkpoints=4, flash_attn=FlashAttn.ON)
    items = spelled(settings, MODEL, MACHINE, build=build)
    assert tuple(item.flag for item in items if item.setting == "ctx_checkpoints") == said
    left_out = absent(settings, Dialect(build))
    assert bool(left_out) == (not said) and all("--ctx-checkpoints" in line for line in left_out)
    assert absent(make_settings(ctx_checkpoints=32), Dialect(build)) == ()


def test_bench_speaks_its_own_dialect() -> None:
    settings = make_settings(
        n_ctx=8192, op_offload=False, repack=False, kv_offload=False, no_host=True, rpc=("h:1",), n_parallel=1
    )
    tokens = one(settings, tool=Tool.BENCH)
    assert " ".join(tokens).endswith("-nopo 1 -nkvo 1 --no-host 1 --repack 0")
    assert (after(tokens, "-p"), after(tokens, "-n"), after(tokens, "-d")) == ("4096", "512", "4096")
    assert after(tokens, "-rpc") == "h:1"
    assert not {"-fit", "-c", "-np", "--port", "-cram"} & set(tokens)
    with pytest.raises(EngineError, match="llama-bench"):
        one(make_settings(moe_cache_mib=1), tool=Tool.BENCH)


def test_every_setting_has_a_flag() -> None:
    spelled_out = {flag.setting for flag in FLAGS}
    assert {field.name for field in fields(Settings)} <= spelled_out


@pytest.mark.parametrize("setting", [field.name for field in fields(Settings)])
def test_flag_and_setting_find_each_other(setting: str) -> None:
    flag = flag_of(setting)
    assert flag is not None and setting_of(flag) == setting


def test_setting_of_takes_every_spelling() -> None:
    assert setting_of("-ub") == setting_of("--ubatch-size") == setting_of("--ubatch_size") == "n_ubatch"
    assert setting_of("--no-op-offload") == setting_of("-nopo") == "op_offload"
    assert setting_of("--no-such-flag") is None


@pytest.mark.parametrize("tool", [Tool.SERVER, Tool.FIT_PARAMS, Tool.BENCH])
def test_every_spelling_of_the_table_is_in_the_tools_help(tool: Tool) -> None:
    words = set((HELP / f"{tool.value}-b11549.txt").read_text().replace(",", " ").split())
    for flag in (*FLAGS, *READ_ONLY):
        if flag.until is not None:
            continue
        names = spellings(flag, tool)
        missing = {*names, *(flag.negative if names and tool is not Tool.BENCH else ())} - words
        assert not missing, f"{flag.setting}: {missing} not in --help"


def test_environment_variables_are_those_of_the_help() -> None:
    text = (HELP / "llama-server-b11549.txt").read_text()
    for flag in (*FLAGS, *READ_ONLY):
        if flag.until is None and flag.env:
            assert f"(env: {flag.env})" in text, flag.setting
    for name in ("-tb,   --threads-batch", "--op-offload, --no-op-offload"):
        entry = text[text.index(name) :].split("\n-", 1)[0]
        assert "(env:" not in entry, f"{name} has a variable now"


def test_split_mode_and_switches() -> None:
    tokens = one(
        make_settings(split_mode=SplitMode.NONE, kv_unified=True, swa_full=True, repack=False, kv_offload=False)
    )
    assert after(tokens, "-sm") == "none"
    assert {"-kvu", "--swa-full", "-nr", "-nkvo"} <= set(tokens)


def test_what_is_asked_for_is_said_at_its_default_where_a_flag_can_say_it() -> None:
    """``--swa-full`` has no negative, and no split is no word."""
    names = frozenset({"kv_offload", "kv_unified", "split_mode", "devices", "swa_full", "tensor_split", "spec_type"})
    said = {item.setting: item.tokens for item in spelled(make_settings(), make_model(), make_machine(make_gpu()))}
    more = spelled(make_settings(), make_model(), make_machine(make_gpu()), explicit=names)
    assert {item.setting: item.tokens for item in more if item.setting not in said} == {
        "devices": ("-dev", "CUDA0"),
        "kv_unified": ("-no-kvu",),
        "split_mode": ("-sm", "layer"),
        "kv_offload": ("-kvo",),
    }
