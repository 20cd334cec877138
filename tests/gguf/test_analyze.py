"""From file to ``Model``: small files made here, and published layouts where they are at hand."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.errors import ModelFileError
from planner.facts.model import AttentionKind, Model, Role
from planner.gguf.analyze import analyze

ROOT = Path(__file__).parents[2]
MIB = 1 << 20


def test_a_small_moe(moe, tmp_path: Path) -> None:
    model = analyze(moe().write(tmp_path / "m.gguf"))
    assert (model.arch, model.name, model.n_layer, model.n_embd) == ("qwen3moe", "Small MoE", 2, 64)
    assert (model.n_vocab, model.n_ctx_train) == (100, 4096)
    assert (model.n_expert, model.n_expert_used, model.n_ff_exp) == (4, 2, 32)
    assert model.is_moe and model.has_output and model.attention_known
    assert model.expert_bytes == 2 * 3 * 64 * 32 * 4 * 34 // 32
    assert model.notes == ()
    assert dict(model.metadata)["qwen3moe.expert_count"] == 4
    assert Counter(t.role for t in model.tensors) == {
        Role.EMBEDDING: 1, Role.NORM: 1, Role.OUTPUT: 1, Role.ATTENTION: 2, Role.ROUTER: 2, Role.EXPERT: 6,
    }  # fmt: skip
    assert all(x.kind is AttentionKind.FULL and x.n_embd_k == x.n_embd_v == 32 for x in model.layers)


def test_rows_of_the_vocabulary_are_as_wide_as_the_model(moe, tmp_path: Path) -> None:
    path = moe(embedding_length=128).write(tmp_path / "m.gguf")
    with pytest.raises(ModelFileError, match=r"embedding_length \(128\).*rows of 64"):
        analyze(path)


def test_what_the_gguf_package_writes(stock) -> None:
    keys = {
        "granitehybrid.block_count": 2, "granitehybrid.context_length": 512, "granitehybrid.embedding_length": 32,
        "granitehybrid.attention.head_count": 2, "granitehybrid.attention.head_count_kv": [0, 1],
        "granitehybrid.expert_count": 3, "granitehybrid.expert_used_count": 1, "granitehybrid.ssm.conv_kernel": 4,
        "granitehybrid.ssm.inner_size": 64, "granitehybrid.ssm.state_size": 8, "granitehybrid.ssm.group_count": 1,
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.tokens": ["a", "b"],
    }  # fmt: skip
    tensors = {
        "token_embd.weight": (32, 2), "blk.0.ssm_in.weight": (32, 8), "blk.1.attn_q.weight": (32, 32),
        "blk.1.ffn_down_exps.weight": (16, 32, 3), "blk.1.ffn_down_exps.bias": (32, 3),
    }  # fmt: skip
    model = analyze(str(stock("m.gguf", "granitehybrid", keys, tensors)))
    assert [x.kind for x in model.layers] == [AttentionKind.RECURRENT, AttentionKind.FULL]
    assert model.layers[0].state_r == 3 * (64 + 16)
    assert model.expert_bytes == 4 * (16 * 32 * 3 + 32 * 3)
    assert ("tokenizer.ggml.model", "gpt2") in model.metadata
    assert not model.has_output


def test_a_dense_model_is_told(moe, raw, tmp_path: Path) -> None:
    dense = raw().string("general.architecture", "llama").tensor("token_embd.weight", (8, 10))
    for key in ("block_count", "context_length", "attention.head_count"):
        dense.u32(f"llama.{key}", 4)
    model = analyze(dense.u32("llama.embedding_length", 8).write(tmp_path / "d.gguf"))
    assert not model.is_moe
    assert "no routed experts" in model.notes[0]


def test_oddities_become_notes(moe, tmp_path: Path) -> None:
    odd = moe(arch="newcomer").tensor("blk.0.ffn_gate_up_exps.weight", (64, 32, 5))
    model = analyze(odd.write(tmp_path / "m.gguf"))
    assert not model.attention_known
    assert "newcomer is unknown" in model.notes[0]
    assert "blk.0.ffn_gate_up_exps.weight" in model.notes[1]
    assert model.layers[0].n_embd_k == 32


def test_text_of_the_file_is_safe_to_print(moe, tmp_path: Path) -> None:
    model = moe().string("general.author", "a\x1b[31m\nb").string("general.description", "long " * 1000)
    found = dict(analyze(model.write(tmp_path / "m.gguf")).metadata)
    assert found["general.author"] == r"a\x1b[31m\nb"
    assert len(str(found["general.description"])) <= 160


def test_fingerprint_stands_for_the_file_and_not_its_place(moe, tmp_path: Path) -> None:
    first = analyze(moe().write(tmp_path / "a.gguf")).fingerprint
    (tmp_path / "sub").mkdir()
    assert analyze(moe().write(tmp_path / "sub" / "b.gguf")).fingerprint == first
    assert analyze(moe(context_length=8192).write(tmp_path / "c.gguf")).fingerprint != first
    with (tmp_path / "a.gguf").open("ab") as file:
        file.write(b"\0")
    assert analyze(str(tmp_path / "a.gguf")).fingerprint != first


def by_role(model: Model) -> dict[Role, int]:
    found: Counter[Role] = Counter()
    for tensor in model.tensors:
        found[tensor.role] += tensor.n_bytes
    return found


def expert_mib(n_layer: int, n_embd: int, n_ff: int, n_expert: int, bits: float) -> float:
    return n_layer * 3 * n_embd * n_ff * n_expert * bits / 8 / MIB


def test_qwen3_235b(zoo: Callable[[str], Path]) -> None:
    model = analyze(str(zoo("qwen3-235b-a22b")))
    assert (model.n_layer, model.n_expert, model.n_expert_used, model.n_ff_exp) == (94, 128, 8, 1536)
    assert expert_mib(94, 4096, 1536, 128, 4.5) < model.expert_bytes / MIB < expert_mib(94, 4096, 1536, 128, 6.5625)
    assert {x.kind for x in model.layers} == {AttentionKind.FULL}
    assert sum(x.n_embd_k + x.n_embd_v for x in model.layers) == 94 * 2 * 4 * 128


def test_gpt_oss_counts_expert_biases(zoo: Callable[[str], Path]) -> None:
    model = analyze(str(zoo("gpt-oss-20b")))
    weights = 24 * 3 * 2880 * 2880 * 32 * 17 // 32
    assert model.expert_bytes == weights + 24 * 3 * 2880 * 32 * 4
    assert [x.window for x in model.layers[:4]] == [128, 0, 128, 0]


def test_lookup_tables_are_not_experts(zoo: Callable[[str], Path]) -> None:
    model = analyze(str(zoo("qwen3.8-flash-next")))
    table = next(t for t in model.tensors if t.name == "per_layer_token_embd.weight")
    assert table.role is Role.LOOKUP
    assert by_role(model)[Role.EXPERT] > by_role(model)[Role.LOOKUP] > 20_000 * MIB


def test_delta_net_projections_and_mtp(zoo: Callable[[str], Path]) -> None:
    model = analyze(str(zoo("qwen3.6-35b-a3b-mtp")))
    roles = {t.name: t.role for t in model.tensors}
    assert roles["blk.0.attn_qkv.weight"] is Role.RECURRENT
    assert roles["blk.3.attn_q.weight"] is Role.ATTENTION
    assert roles["blk.40.nextn.eh_proj.weight"] is Role.NEXTN
    assert roles["blk.40.ffn_down_exps.weight"] is Role.EXPERT
    assert (model.n_layer, model.n_layer_nextn) == (41, 1)
    assert [x.index for x in model.layers if x.nextn] == [40]


IMPORTS = """
import sys
from planner.gguf.analyze import analyze
analyze(sys.argv[1])
heavy = {"numpy", "pydantic", "gguf", "rich", "urllib.request", "http.client", "tempfile"} & set(sys.modules)
print(*sorted(heavy))
"""


def test_nothing_heavy_is_imported(moe, tmp_path: Path) -> None:
    path = moe().write(tmp_path / "m.gguf")
    done = subprocess.run([sys.executable, "-c", IMPORTS, path], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "\n", "")


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no /proc on this system")
def test_memory_of_a_large_header(zoo: Callable[[str], Path]) -> None:
    code = (
        "import sys\nfrom planner.gguf.analyze import analyze\nanalyze(sys.argv[1])\n"
        "print(next(int(x.split()[1]) for x in open('/proc/self/status') if x.startswith('VmHWM')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(zoo("qwen3-235b-a22b"))], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 40 * 1024
