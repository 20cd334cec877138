"""What llama.cpp knows by architecture and no file says. Only this, and only here.

Read from src/llama-arch.cpp, ``load_arch_hparams`` in src/models/*.cpp and ``llama_model::create_memory`` in
src/llama-model.cpp of b11434. Everything else comes from the file.
"""

from __future__ import annotations

from typing import Final, NamedTuple


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


KNOWN: Final = _names(
    """
    afmoe apertus arcee arctic arwkv7 baichuan bailingmoe bailingmoe2 bailingmoe3 bert bitnet bloom chameleon chatglm
    clef codeshell cogvlm cohere2 cohere2moe command-r dbrx deci deepseek deepseek2 deepseek2-ocr deepseek32 deepseek4
    dflash dots1 dots3note dream eagle3 ernie4_5 ernie4_5-moe eurobert exaone exaone-moe exaone4 falcon falcon-h1
    gemma gemma-embedding gemma2 gemma3 gemma3n gemma4 gemma4-assistant glm-dsa glm4 glm4moe glm5-next gpt-oss gpt2
    gptj gptneox granite granite_swa granitehybrid granitemoe graniteswitch grok grovemoe hrm_text hunyuan-dense
    hunyuan-moe hunyuan_vl hy_v3 hy_v4 internlm2 jais jais2 jamba jina-bert-v2 jina-bert-v3 kimi-k3 kimi-linear laguna
    lfm2 lfm2moe llada llada-moe llama llama-embed llama4 maincoder mamba mamba2 maple mellum mimo2 minicpm minicpm3
    minimax-01 minimax-m2 minimax-m3 mistral3 mistral4 modern-bert mpt muse-glimmer nanbeige nemotron nemotron_h
    nemotron_h_moe neo-bert nomic-bert nomic-bert-moe olmo olmo2 olmoe openelm orion paddleocr pangu-embedded phi2 phi3
    phimoe plamo plamo2 plamo3 plm pockettts qwen qwen2 qwen2moe qwen2vl qwen3 qwen35 qwen35moe qwen3moe qwen3next
    qwen3tts qwen3vl qwen3vlmoe qwen4exp refact rnd1 rwkv6 rwkv6qwen2 rwkv7 seed_oss smallthinker smollm3 spark2_5
    stablelm starcoder starcoder2 step35 t5 t5encoder talkie wavtokenizer-dec xverse
    """
)
"""``LLM_ARCH_NAMES``, src/llama-arch.cpp."""

NO_CACHE: Final = _names(
    """
    bert clef dream eurobert gemma-embedding jina-bert-v2 jina-bert-v3 llada llada-moe modern-bert neo-bert nomic-bert
    nomic-bert-moe rnd1 wavtokenizer-dec
    """
)
"""Encoders and diffusion models: ``create_memory`` returns nothing."""

RECURRENT: Final = frozenset({"arwkv7", "mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7"})
"""``llm_arch_is_recurrent``: every block is recurrent."""

WKV: Final = frozenset({"arwkv7", "rwkv6", "rwkv6qwen2", "rwkv7"})
SHORT_CONV: Final = frozenset({"lfm2", "lfm2moe"})
DELTA_ATTENTION: Final = frozenset({"bailingmoe3", "glm5-next", "kimi-k3", "kimi-linear"})
"""Whose state ``wkv.head_size``, ``shortconv.l_cache`` and ``kda.head_dim`` size: others ignore these keys."""

ZERO_KV_RECURRENT: Final = _names(
    """
    bailingmoe3 glm5-next granitehybrid jamba kimi-k3 kimi-linear lfm2 lfm2moe nemotron_h nemotron_h_moe plamo2
    """
)
"""A block without KV heads is recurrent."""

ONE_FUNCTION_PER_BLOCK: Final = frozenset({"nemotron_h", "nemotron_h_moe"})
"""A block with a feed-forward width caches nothing, src/models/nemotron-h.cpp."""

BOTH: Final = frozenset({"falcon-h1"})
"""Attention and recurrence in every block."""

FULL_ATTENTION_INTERVAL: Final = {"minimax-01": 8, "qwen3next": 4, "qwen35": 4, "qwen35moe": 4, "qwen4exp": 4}
"""Every n-th block is attention and the others are recurrent; default where the file gives no interval."""

NEXTN_CACHED: Final = _names(
    """
    bailingmoe3 deepseek4 falcon-h1 granitehybrid hy_v4 jamba kimi-k3 kimi-linear lfm2 lfm2moe minimax-m3 nemotron_h
    nemotron_h_moe plamo2
    """
)
"""The main context caches multi-token-prediction blocks even without MTP: ``create_memory`` filters none out."""


class Window(NamedTuple):
    """A sliding-window rule.

    Args:
        period: every n-th block sees everything (0: none does); None if the file must carry the pattern.
        dense_first: the first block of a period is the one that sees everything, not the last.
        default: window where the file has no ``attention.sliding_window``; None: then there is no window.
        forced: window whatever the file says.
        chunked: tokens see their chunk, not the last n.
        only_layers: the rule holds only for models of this many blocks.
        reads_pattern: ``attention.sliding_window_pattern`` of the file wins over ``period``.
    """

    period: int | None
    dense_first: bool = False
    default: int | None = None
    forced: int | None = None
    chunked: bool = False
    only_layers: int | None = None
    reads_pattern: bool = True


WINDOWS: Final = {
    "afmoe": Window(4),
    "cohere2": Window(4),
    "cohere2moe": Window(4, dense_first=True),
    "deepseek4": Window(0, reads_pattern=False),
    "dots3note": Window(None),
    "dflash": Window(None),
    "exaone-moe": Window(4),
    "exaone4": Window(4, default=4096, only_layers=64),
    "gemma2": Window(2, default=4096),
    "gemma3": Window(6),
    "gemma3n": Window(5),
    "gemma4": Window(None),
    "gemma4-assistant": Window(None),
    "gpt-oss": Window(2),
    "granite_swa": Window(None),
    "laguna": Window(4, dense_first=True),
    "lfm2": Window(0, reads_pattern=False),
    "llama4": Window(4, default=8192, forced=8192, chunked=True),
    "maple": Window(None),
    "mellum": Window(4),
    "mimo2": Window(None),
    "muse-glimmer": Window(4),
    "olmo2": Window(4),
    "plamo3": Window(8),
    "smallthinker": Window(4, dense_first=True, forced=4096),
    "spark2_5": Window(None),
    "step35": Window(None),
}
"""``load_swa_pattern`` and ``set_swa_pattern`` calls in src/models/*.cpp. Others ignore a window in the file."""
