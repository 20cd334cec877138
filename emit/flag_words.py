"""Flags of llama.cpp that no setting of moeplan depends on: how many values they take, what replaced them.

``--help`` of llama-server, llama-fit-params and llama-bench, b11549.
"""

from __future__ import annotations

from typing import Final

from planner.plans.settings import Tool

_COMMON_SWITCHES: Final = """
    -h --help --usage --version -cl --cache-list --completion-bash --perf --no-perf -e --escape --no-escape
    --list-devices --check-tensors --log-disable --log-jsonl --no-log-jsonl -v --verbose --log-verbose --offline
    --log-prefix --no-log-prefix --log-timestamps --no-log-timestamps --ignore-eos -bs --backend-sampling
"""
_COMMON_VALUES: Final = """
    -C --cpu-mask -Cr --cpu-range --cpu-strict --prio --poll -Cb --cpu-mask-batch -Crb --cpu-range-batch
    --cpu-strict-batch --prio-batch --poll-batch -n --predict --n-predict --keep --rope-scaling --rope-scale
    --rope-freq-base --rope-freq-scale --yarn-orig-ctx --yarn-ext-factor --yarn-attn-factor --yarn-beta-slow
    --yarn-beta-fast -dt --defrag-thold -lzm --lazy-mode --numa -fitt --fit-target -fitc --fit-ctx --override-kv
    --lora --lora-scaled --control-vector --control-vector-scaled -dr --docker-repo -hf -hfr
    --hf-repo -hff --hf-file -hft --hf-token --log-file --log-colors -lv --verbosity --log-verbosity
    --spec-draft-type-k -ctkd --cache-type-k-draft --spec-draft-type-v -ctvd --cache-type-v-draft --samplers -s
    --seed --sampler-seq --sampling-seq --temp --temperature --top-k --top-p --min-p --top-nsigma --top-n-sigma
    --xtc-probability --xtc-threshold --typical --typical-p --repeat-last-n --repeat-penalty --presence-penalty
    --frequency-penalty --dry-multiplier --dry-base --dry-allowed-length --dry-penalty-last-n
    --dry-sequence-breaker --adaptive-target --adaptive-decay --dynatemp-range --dynatemp-exp --mirostat
    --mirostat-lr --mirostat-ent -l --logit-bias --grammar --grammar-file -j --json-schema -jf --json-schema-file
"""
_SERVER_SWITCHES: Final = """
    --cache-idle-slots --no-cache-idle-slots --context-shift --no-context-shift -sp --special --warmup --no-warmup
    --spm-infill -cb --cont-batching -nocb --no-cont-batching --mmproj-auto --no-mmproj --no-mmproj-auto
    --mmproj-offload --no-mmproj-offload --reuse-port --cors-credentials --no-cors-credentials --ui-mcp-proxy
    --webui-mcp-proxy --no-ui-mcp-proxy --no-webui-mcp-proxy -ag --agent -no-ag --no-agent --ui --webui --no-ui
    --no-webui --embedding --embeddings --rerank --reranking --cache-prompt --no-cache-prompt --metrics --props
    --slots --no-slots --models-autoload --no-models-autoload --jinja --no-jinja --reasoning-preserve
    --no-reasoning-preserve --skip-chat-parsing --no-skip-chat-parsing --prefill-assistant --no-prefill-assistant
    --lora-init-without-apply --spec-draft-cpu-moe -cmoed --cpu-moe-draft --spec-draft-backend-sampling
    --no-spec-draft-backend-sampling --embd-gemma-default --fim-qwen-1.5b-default --fim-qwen-3b-default
    --fim-qwen-7b-default --fim-qwen-7b-spec --fim-qwen-14b-spec --fim-qwen-30b-default --gpt-oss-20b-default
    --gpt-oss-120b-default --vision-gemma-4b-default --vision-gemma-12b-default --spec-default
"""
_SERVER_VALUES: Final = """
    --spec-draft-hf -hfd -hfrd --hf-repo-draft --spec-draft-threads -td --threads-draft --spec-draft-threads-batch
    -tbd --threads-batch-draft --spec-draft-cpu-mask -Cd --cpu-mask-draft --spec-draft-cpu-range -Crd
    --cpu-range-draft --spec-draft-cpu-strict --cpu-strict-draft --spec-draft-prio --prio-draft --spec-draft-poll
    --poll-draft --spec-draft-cpu-mask-batch -Cbd --cpu-mask-batch-draft --spec-draft-cpu-strict-batch
    --cpu-strict-batch-draft --spec-draft-prio-batch --prio-batch-draft --spec-draft-poll-batch
    --poll-batch-draft --spec-draft-override-tensor -otd --override-tensor-draft --spec-draft-n-cpu-moe
    --spec-draft-ncmoe -ncmoed --n-cpu-moe-draft --spec-draft-n-max --spec-draft-n-min --spec-synth-len
    --spec-synth-rates --spec-draft-p-split --draft-p-split --spec-draft-p-min --draft-p-min --spec-draft-sampling
    --spec-draft-device -devd --device-draft --spec-draft-ngl -ngld --gpu-layers-draft --n-gpu-layers-draft
    --spec-draft-model -md --model-draft --spec-ngram-mod-n-min --spec-ngram-mod-n-max --spec-ngram-mod-n-match
    --spec-ngram-simple-size-n --spec-ngram-simple-size-m --spec-ngram-simple-min-hits --spec-ngram-map-k-size-n
    --spec-ngram-map-k-size-m --spec-ngram-map-k-min-hits --spec-ngram-map-k4v-size-n --spec-ngram-map-k4v-size-m
    --spec-ngram-map-k4v-min-hits -lcs --lookup-cache-static -lcd --lookup-cache-dynamic -cms
    --checkpoint-min-step -r --reverse-prompt --pooling -mm --mmproj -mmu --mmproj-url -mmdev --mmproj-device
    --image-min-tokens --image-max-tokens --mtmd-batch-max-tokens --video-fps --video-timestamp-interval
    --video-ffmpeg-dir -a --alias --tags --embd-normalize --path --cors-origins --cors-methods --cors-headers
    --api-prefix --ui-config --webui-config --ui-config-file --webui-config-file --tools --tools-runtime
    --mcp-servers-config --mcp-servers-json --api-key --api-key-file --ssl-key-file --ssl-cert-file
    --chat-template-kwargs -to --timeout --sse-ping-interval --threads-http --cache-reuse --slot-save-path
    --media-path --models-dir --models-preset --models-max --reasoning-format -rea --reasoning --reasoning-effort
    --reasoning-budget --reasoning-budget-message --chat-template --chat-template-file -sps
    --slot-prompt-similarity --sleep-idle-seconds --log-prompts-dir
"""
_TEXT_VALUES: Final = "-p --prompt -f --file -bf --binary-file"
_BENCH_SWITCHES: Final = "-h --help --version --list-devices -v --verbose --progress --no-warmup --offline"
_BENCH_VALUES: Final = """
    --numa -r --repetitions --prio --delay -o --output -oe --output-err -fitt --fit-target -fitc --fit-ctx -hf -hfr
    --hf-repo -hff --hf-file -hft --hf-token -C --cpu-mask --cpu-strict --poll -lzm --lazy-mode -embd --embeddings
"""


def _arity(switches: str, values: str) -> dict[str, int]:
    return dict.fromkeys(switches.split(), 0) | dict.fromkeys(values.split(), 1)


_COMMON: Final = _arity(_COMMON_SWITCHES, _COMMON_VALUES) | {"--control-vector-layer-range": 2}

OTHER_ARITY: Final[dict[Tool, dict[str, int]]] = {
    Tool.SERVER: _COMMON | _arity(_SERVER_SWITCHES, _SERVER_VALUES),
    Tool.COMPLETION: _COMMON | _arity("", _TEXT_VALUES),
    Tool.FIT_PARAMS: _COMMON | _arity("", "-fitp --fit-print " + _TEXT_VALUES),
    Tool.BENCH: _arity(_BENCH_SWITCHES, _BENCH_VALUES),
}
"""Values after each flag, by tool."""

_PROJECTOR: Final = "the vision projector"
_DRAFT: Final = "the draft model"
UNCOUNTED: Final[dict[str, str]] = {
    "-mm": _PROJECTOR,
    "--mmproj": _PROJECTOR,
    "-mmu": _PROJECTOR,
    "--mmproj-url": _PROJECTOR,
    "-md": _DRAFT,
    "--model-draft": _DRAFT,
    "--spec-draft-model": _DRAFT,
    "-hfd": _DRAFT,
    "-hfrd": _DRAFT,
    "--hf-repo-draft": _DRAFT,
    "--spec-draft-hf": _DRAFT,
    "--lora": "the LoRA adapter",
    "--lora-scaled": "the LoRA adapter",
    "--control-vector": "the control vector",
    "--control-vector-scaled": "the control vector",
}
"""Flags that load something the prediction does not hold."""

REMOVED: Final[dict[str, tuple[int | None, str]]] = {
    "--draft": (None, "--spec-draft-n-max"),
    "--draft-n": (None, "--spec-draft-n-max"),
    "--draft-max": (None, "--spec-draft-n-max"),
    "--draft-min": (None, "--spec-draft-n-min"),
    "--draft-n-min": (None, "--spec-draft-n-min"),
    "--spec-ngram-size-n": (None, "--spec-ngram-simple-size-n"),
    "--spec-ngram-size-m": (None, "--spec-ngram-simple-size-m"),
    "--spec-ngram-min-hits": (None, "--spec-ngram-simple-min-hits"),
    "--no-mmap": (10884, "--load-mode none"),
    "--mmap": (10884, "--load-mode mmap"),
    "-mmp": (10884, "--load-mode none"),
    "--mlock": (10884, "--load-mode mmap+mlock"),
    "-dio": (10884, "--load-mode dio"),
    "--direct-io": (10884, "--load-mode dio"),
}
"""Flag → (first build without it, None if before every build that was checked; what to write instead)."""
