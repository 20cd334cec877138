"""Published rows as facts: the machine as its owner would write it down, the layout of the model, the settings.

Nothing is guessed that a row does not say: what is missing is left to what moeplan assumes. Only sizes of cards and
core counts of processors are added by name, since a machine file has them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from planner.cost import rates
from planner.cost.known_cpus import CHANNEL_BYTES, known_cpu
from planner.facts import pcie
from planner.facts.machine import Backend, Cpu, DriverModel, Engine, Gpu, Machine, Os, Ram
from planner.facts.model import Model, Role
from planner.facts.reading import Reading, Source
from planner.gguf.analyze import analyze
from planner.plans.settings import FlashAttn, LoadMode, Settings, SplitMode
from planner.units import GIB

LAYOUTS = {
    "qwen3-30b": "qwen3-30b-a3b", "qwen3-235b": "qwen3-235b-a22b", "qwen3-next": "qwen3-next-80b-a3b",
    "qwen3-coder-next": "qwen3-coder-next", "qwen3.5-35b": "qwen3.6-35b-a3b", "qwen3.6-35b": "qwen3.6-35b-a3b",
    "qwen3.5-122b": "qwen3.5-122b-a10b", "qwen3.8-flash-next": "qwen3.8-flash-next", "gpt-oss-120b": "gpt-oss-120b",
    "gpt-oss-20b": "gpt-oss-20b", "glm-4.5-air": "glm-4.5-air", "glm-4.7 355b": "glm-4.6",
    "gemma-4-26b": "gemma-4-26b-a4b",
    "deepseek-v3-0324": "deepseek-v3", "deepseek-v4-flash": "deepseek-v4-flash", "llama-4-scout": "llama4-scout",
    "dots.llm1": "dots.llm1", "hunyuan-a13b": "hunyuan-a13b", "nemotron-3-nano": "nemotron-3-nano",
}  # fmt: skip
"""Start of a published name → layout of ``zoo.py`` (GLM-4.7 has that of 4.6, Qwen3.5-35B that of 3.6)."""

MIXES = (
    (r"F16 \(MXFP4", "f16-dense"), (r"MXFP4", None), (r"IQ[123]_|Q2_K", "q2_k"), (r"Q5_K", "q5_k_m"), (r"Q6_K", "q6_k"),
    (r"Q4_0", "q4_0"), (r"IQ4_XS", "iq4_xs"), (r"", None),
)  # fmt: skip
"""Published quantisation → mix of ``zoo.py``, None is its default; experts are then scaled to the size of the file."""

DENSE_F16 = r"(attn_(q|k|v|output)|^output|token_embd)\.weight=f16"
CORES = {
    "9355": 32, "5975WX": 32, "3995WX": 64, "MAX+ 395": 16, "8086K": 6, "10900X": 10, "14900K": 24, "13700KF": 16,
    "5800X": 8, "9950X": 16, "7950X": 16, "7800X3D": 8,
}  # fmt: skip
FAST_CORES = {"14900K": 8, "13700KF": 8}
CARD_GIB = {
    "3090": 24, "4090": 24, "4090D": 48, "5090": 32, "A6000": 48, "4080": 16, "5070": 16, "5060": 16, "4070": 12,
    "3060": 12, "3080": 10, "2080": 8, "GB10": 119, "8060S": 120, "gfx1030": 16,
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One published row; ``apart`` says why it is no fair test of the model, "" if it is."""

    row: dict[str, Any]
    apart: str

    @property
    def id(self) -> str:
        return str(self.row["id"])

    @property
    def stated(self) -> bool:
        """The row says which CPU, RAM and GPU."""
        return all(self.row["machine"].get(part) for part in ("cpu", "ram", "gpu"))


def case_of(row: dict[str, Any]) -> Case:
    """Why a row is set apart: another engine, another way to split, a machine in trouble, a placement not told."""
    text = f"{row.get('flags') or ''} {row.get('note') or ''}"
    moved, cards = row.get("n_cpu_moe"), str(row["machine"].get("gpu"))
    told = isinstance(moved, int) or moved == "all" or (moved is None and _placed(row, text, cards))
    reasons = (
        ("other engine", "ik_llama" in row["engine"]),
        ("row or tensor split", re.search(r"-sm (row|tensor)|row split", text) is not None),
        ("swaps or spills", re.search(r"swapping|spilling|at the edge|edge again", text) is not None),
        ("placement not told", not told),
        ("remote device", "RPC" in cards),
        ("cards unknown", re.search(r"AMD GPUs|consumer GPU|VRAM total", cards) is not None),
    )
    return Case(row, next((reason for reason, holds in reasons if holds), ""))


def _placed(row: dict[str, Any], text: str, cards: str) -> bool:
    """Told without ``--n-cpu-moe``: overrides, or all layers where memory is shared or the cards are large enough."""
    return bool(row.get("ot") or row.get("ngl") or re.search(r"-ngl|ffn of \d+ layers", text) or "AMD" in cards)


def layout_of(row: dict[str, Any], shared: Path, folder: Path) -> Model | None:
    """The row's model: the layout of its name in its quantisation, experts scaled to the size of the file."""
    name = next((zoo for start, zoo in LAYOUTS.items() if row["model"].lower().startswith(start)), None)
    if name is None:
        return None
    mix = next(mix for pattern, mix in MIXES if re.search(pattern, row["quant"] or ""))
    model = _read(shared, folder, name, mix)
    size = row.get("file_size_gib") or _size_gib(row["quant"] or "")
    if not size or mix == "f16-dense":
        return model
    experts = model.expert_bytes
    scale = (size * GIB - (model.file_bytes - experts)) / experts
    tensors = tuple(replace(t, n_bytes=int(t.n_bytes * scale)) if t.role is Role.EXPERT else t for t in model.tensors)
    return replace(model, tensors=tensors)


def _size_gib(quant: str) -> float | None:
    found = re.search(r"([\d.]+) ?(GiB|GB)", quant)
    return None if found is None else float(found[1]) * (1.0 if found[2] == "GiB" else 1e9 / GIB)


@cache
def _read(shared: Path, folder: Path, name: str, mix: str | None) -> Model:
    path = folder / (f"{name}.gguf" if mix is None else f"{name}.{mix}.gguf")
    if not path.exists():
        zoo = shared / "zoo"
        types = ["--type", DENSE_F16] if mix == "f16-dense" else ["--quant", mix] if mix else []
        command = [sys.executable, str(zoo / "zoo.py"), name, str(path), "--vocab", str(zoo / "vocab"), *types]
        subprocess.run(command, check=True, capture_output=True)
    return analyze(str(path))


def machine_of(row: dict[str, Any]) -> Machine:
    told = row["machine"]
    cpu_name, ram_text = told.get("cpu"), told.get("ram") or ""
    cores = next((n for part, n in CORES.items() if part in (cpu_name or "")), None)
    fast = next((n for part, n in FAST_CORES.items() if part in (cpu_name or "")), cores)
    windows = "Windows" in (told.get("os") or "")
    size = re.search(r"(\d+) GB(?!/s)", ram_text)
    total = int(size[1]) * GIB if size else 768 * GIB
    return Machine(
        os=Os.WINDOWS if windows else Os.LINUX,
        cpu=Cpu(cpu_name, physical_cores=cores, performance_cores=fast),
        ram=Ram(total, available_bytes=total - 3 * GIB, read_bps=_ram_rate(ram_text, cpu_name)),
        gpus=_gpus(told, windows=windows),
        engine=Engine(kind="ik_llama.cpp" if "ik_llama" in row["engine"] else "llama.cpp"),
    )


def _ram_rate(text: str, cpu: str | None) -> Reading | None:
    """A stated rate; else the stated transfers over the processor's channels, two where it is not known."""
    rate = re.search(r"([\d.]+) ?GB/s", text)
    if rate:
        return Reading(float(rate[1]) * 1e9, Source.USER)
    speed = re.search(r"DDR[45]X?-(\d{4})|(\d{4}) MT/s", text)
    if speed is None:
        return None
    known = known_cpu(cpu)
    channels = known.channels if known else 2
    transfers = 1e6 * int(speed[1] or speed[2])
    return Reading(channels * CHANNEL_BYTES * transfers * rates.READ_SHARE, Source.USER, f"{channels} channels")


def _gpus(told: dict[str, Any], *, windows: bool) -> tuple[Gpu, ...]:
    """``5090 + 2x4090`` → cards with the names, sizes and links that are told."""
    names: list[str] = []
    for part in re.split(r" ?\+ ?", told.get("gpu") or ""):
        times = re.match(r"(\d)x ?", part)
        names += [re.sub(r"^\dx ?", "", part)] * (int(times[1]) if times else 1)
    links = [re.search(r"(\d)\.0 x(\d+)", told.get("pcie") or "")]
    return tuple(_gpu(i, name, links[0], windows=windows) for i, name in enumerate(names) if name)


def _gpu(index: int, name: str, link: re.Match[str] | None, *, windows: bool) -> Gpu:
    unified = any(part in name for part in ("8060S", "GB10"))
    amd = any(part in name for part in ("8060S", "gfx", "AMD"))
    size = re.search(r"(\d+) ?GB", name)
    gib = int(size[1]) if size else next((n for part, n in CARD_GIB.items() if part in name), 24)
    pinned = pcie.pinned(int(link[1]), int(link[2])) if link else None
    return Gpu(
        id=f"CUDA{index}" if not amd else f"ROCm{index}",
        total_bytes=gib * GIB,
        name=name,
        backend=Backend.ROCM if amd else Backend.CUDA,
        driver_model=DriverModel.WDDM if windows else DriverModel.LINUX,
        unified=unified,
        used_bytes=0,
        h2d_pinned_bps=pinned and replace(pinned, source=Source.USER),
    )


def settings_of(row: dict[str, Any], model: Model, machine: Machine) -> Settings:
    """The row's flags; what it does not say is llama.cpp's default."""
    flags = row.get("flags") or ""

    def flag(pattern: str, known: object = None) -> int | None:
        found = re.search(pattern, flags)
        return int(found[1]) if found else known if isinstance(known, int) else None

    moved = row.get("n_cpu_moe")
    ubatch = row.get("ubatch") or flag(r"-ub (\d+)") or 512
    unmapped = re.search(r"--no-mmap|-lm none", flags) is not None
    split = re.search(r"-sm (row|tensor)", flags)
    return Settings(
        n_ctx=max((row.get("depth") or 0) + (row.get("n_prompt") or 0) + (row.get("n_gen") or 0), 4096),
        n_gpu_layers=min(flag(r"-ngl (\d+)", row.get("ngl")) or 999, model.n_layer + 1),
        n_cpu_moe=model.n_layer if moved == "all" else moved if isinstance(moved, int) else 0,
        override_tensor=_overrides(row.get("ot") or flags, model, machine),
        n_ubatch=ubatch,
        n_batch=max(2048, ubatch),
        type_k=row.get("ctk") or "f16",
        type_v=row.get("ctk") or "f16",
        flash_attn=FlashAttn.OFF if row.get("fa") == 0 else FlashAttn.ON,
        load_mode=LoadMode.NONE if unmapped else LoadMode.MMAP,
        threads=row.get("threads") or flag(r"-t (\d+)"),
        devices=tuple(gpu.id for gpu in machine.gpus),
        split_mode=SplitMode(split[1]) if split else SplitMode.LAYER,
    )


def _overrides(text: str, model: Model, machine: Machine) -> tuple[tuple[str, str], ...]:
    """The three ways in which rows tell of ``-ot``."""
    host = (r"_exps", "CPU")
    some = re.search(r"ffn layers (\d)-(\d) on GPU", text)
    if some:
        return ((rf"blk\.[{some[1]}-{some[2]}]\.ffn_", machine.gpus[0].id), host)
    many = re.search(r"ffn of (\d+) layers on GPUs", text)
    if many:
        last = model.n_layer - int(many[1])
        return ((rf"blk\.({'|'.join(str(i) for i in range(last))})\.ffn_.*_exps", "CPU"),)
    return (host,) if "exps=CPU" in text else ()
