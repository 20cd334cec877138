"""Records which experts a GGUF's router selects: ``script_routing.py LIBLLAMA JOB`` with the job as JSON.

The text goes through in chunks as llama-imatrix cuts it (tools/imatrix/imatrix.cpp, b11312), each at an empty cache
and with its first token replaced by the vocabulary's BOS, so that both count the same. After the last chunk the model
goes on by itself, one token at a time. The scheduler's callback sees every ``ffn_moe_topk-<block>`` (i32
``[slot, token]``, src/llama-graph.cpp) before the experts run. Selections go to ``job["out"]`` as an ``.npz``,
progress to stdout, one JSON object per line. It runs in a process of its own, which may die.

Any libllama will do, that of a release or of llama-cpp-python: parameters are opaque blocks larger than any build's,
and the few fields that are set are found by the defaults around them (include/llama.h and
``llama_context_default_params`` of b11312 to b11549; checked with 0.3.36 and b11549).
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import sys
from typing import Any

NAME = b"ffn_moe_topk-"
I32 = 26
"""``GGML_TYPE_I32``, ggml/include/ggml.h."""
NOT_ROUTED = 0xFFFF
TOP, TOP_SHARE, LEAST_SHARE, TEMPERATURE = 40, 0.95, 0.05, 0.8
"""Sampling of what the model writes by itself, llama-server's defaults (``--top-k --top-p --min-p --temp``, b11549)."""


class Tensor(ctypes.Structure):
    """The head of ``struct ggml_tensor``, ggml/include/ggml.h; checked against the library's own answers."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("buffer", ctypes.c_void_p),
        ("ne", ctypes.c_int64 * 4),
        ("nb", ctypes.c_size_t * 4),
    )


class Params(ctypes.Structure):
    """``llama_model_params`` or ``llama_context_params``: larger than either, returned and passed in memory."""

    _fields_ = (("words", ctypes.c_int32 * 256),)


class Batch(ctypes.Structure):
    """``llama_batch``, include/llama.h."""

    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.c_void_p),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)
"""``ggml_backend_sched_eval_callback``, ggml/include/ggml-backend.h."""
MINUS_ONE = -1082130432
"""Bits of -1.0f."""


LAYERS = (-1, 0, 99, 999)
"""What ``n_gpu_layers`` was by default, after two empty pointers."""


class Library:
    """libllama with what it needs, loaded from its own folder and the ``lib`` folder of a wheel."""

    def __init__(self, path: str) -> None:
        folder = os.path.dirname(path)
        self._parts = [ctypes.CDLL(at, mode=ctypes.RTLD_GLOBAL) for at in (*_parts(folder), path)]
        try:
            of = self.function("ggml_backend_load_all_from_path", None, ctypes.c_char_p)
            of(os.fsencode(folder))
        except AttributeError:
            self.function("ggml_backend_load_all", None)()
        self.function("llama_backend_init", None)()

    def function(self, name: str, result: Any, *arguments: Any) -> Any:
        found = next((part for part in self._parts if hasattr(part, name)), None)
        if found is None:
            raise AttributeError(name)
        symbol = getattr(found, name)
        symbol.restype, symbol.argtypes = result, arguments
        return symbol


def _parts(folder: str) -> list[str]:
    """The ggml libraries that libllama is linked against, one file each, those they build on first."""
    names = sorted(os.listdir(folder))
    found = []
    for stem in ("ggml-base", "ggml-cpu", "ggml"):
        plain = [
            n
            for n in names
            if n.removeprefix("lib").split(".")[0] == stem and n.split(".")[1] in ("so", "dylib", "dll")
        ]
        found += [os.path.join(folder, name) for name in plain[:1]]
    return found


def place_of_callback(words: Any) -> int:
    """Index of ``cb_eval``: two empty pointers after ``defrag_thold`` (-1, padded), before two types that are f16."""
    if list(words[:4]) != [512, 2048, 512, 1]:
        raise SystemExit("its context parameters do not begin as in the builds that are known")
    fits = [
        i
        for i in range(4, 120, 2)
        if list(words[i : i + 6]) == [0, 0, 0, 0, 1, 1] and MINUS_ONE in (words[i - 1], words[i - 2])
    ]
    if len(fits) != 1:
        raise SystemExit("its context parameters are not those of the builds that are known")
    return fits[0]


def say(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Recorder:
    """Keeps the selections of one ``llama_decode`` after the other."""

    def __init__(self, library: Library) -> None:
        pointer, size, function = ctypes.c_void_p, ctypes.c_size_t, library.function
        self._name = function("ggml_get_name", ctypes.c_char_p, pointer)
        self._n_bytes = function("ggml_nbytes", size, pointer)
        self._elements = function("ggml_nelements", ctypes.c_int64, pointer)
        self._get = function("ggml_backend_tensor_get", None, pointer, pointer, size, size)
        self.rows: dict[int, list[Any]] = {}
        self.error = ""

    def callback(self, tensor: int, ask: bool, _: Any) -> bool:
        """``ggml_backend_sched_eval_callback``: wants the routers' choices, and takes them."""
        name = self._name(tensor)
        if not name.startswith(NAME):
            return False
        if not ask:
            try:
                self._take(int(name[len(NAME) :]), tensor)
            except Exception as error:  # an exception cannot pass through C
                self.error = self.error or str(error)
        return True

    def _take(self, block: int, address: int) -> None:
        import numpy as np

        head = Tensor.from_address(address)
        slots, tokens = head.ne[0], head.ne[1]
        n_bytes = self._n_bytes(address)
        if head.type != I32 or slots * tokens != self._elements(address) or head.nb[0] != 4:
            raise ValueError("the bindings do not fit the library")
        raw = np.empty(n_bytes, np.uint8)
        self._get(address, raw.ctypes.data, 0, n_bytes)
        ids = np.lib.stride_tricks.as_strided(raw.view(np.int32), (tokens, slots), (head.nb[1], 4))
        self.rows.setdefault(block, []).append(ids.astype(np.uint16))

    def taken(self, n_tokens: int) -> Any:
        """``{block: [token, slot]}`` of what was decoded last; a block that saw the last tokens only has them last."""
        import numpy as np

        if self.error:
            raise SystemExit(self.error)
        result = {}
        for block, parts in self.rows.items():
            ids = np.concatenate(parts)[-n_tokens:]
            missing = np.full((n_tokens - len(ids), ids.shape[1]), NOT_ROUTED, np.uint16)
            result[block] = np.concatenate([missing, ids])
        self.rows = {}
        return result


class Engine:
    """A context of the model that tells a recorder what its routers choose."""

    def __init__(self, library: Library, job: dict[str, Any], recorder: Recorder) -> None:
        self._of, pointer, i32 = library.function, ctypes.c_void_p, ctypes.c_int32
        params = self._of("llama_model_default_params", Params)()
        if any(params.words[:4]) or params.words[4] not in LAYERS:
            raise SystemExit("its model parameters do not begin as in the builds that are known")
        params.words[4] = 0
        load = self._of("llama_model_load_from_file", pointer, ctypes.c_char_p, Params)
        model = load(os.fsencode(job["model"]), params)
        if not model:
            raise SystemExit("the file does not load")
        self.vocab = self._of("llama_model_get_vocab", pointer, pointer)(model)
        self._callback = CALLBACK(recorder.callback)
        context = self._of("llama_context_default_params", Params)()
        place = place_of_callback(context.words)
        ctypes.c_void_p.from_buffer(context, 4 * place).value = ctypes.cast(self._callback, pointer).value
        context.words[0], context.words[1], context.words[2] = job["chunk"] + job["answer"], job["chunk"], job["chunk"]
        self._context = self._of("llama_init_from_model", pointer, pointer, Params)(model, context)
        if not self._context:
            raise SystemExit("no context")
        self._of("llama_set_n_threads", None, pointer, i32, i32)(self._context, job["threads"], job["threads"])
        self._n_vocab = self._of("llama_vocab_n_tokens", i32, pointer)(self.vocab)
        self._decode = self._of("llama_decode", i32, pointer, Batch)
        self._logits = self._of("llama_get_logits_ith", ctypes.POINTER(ctypes.c_float), pointer, i32)
        self._memory = self._of("llama_get_memory", pointer, pointer)
        self._clear = self._of("llama_memory_clear", None, pointer, ctypes.c_bool)

    @property
    def bos(self) -> int | None:
        """The token that begins a text; None where the vocabulary wants none."""
        if not self._of("llama_vocab_get_add_bos", ctypes.c_bool, ctypes.c_void_p)(self.vocab):
            return None
        return int(self._of("llama_vocab_bos", ctypes.c_int32, ctypes.c_void_p)(self.vocab))

    def tokens(self, text: bytes) -> list[int]:
        most, i32, flag = len(text) + 8, ctypes.c_int32, ctypes.c_bool
        ids = (i32 * most)()
        kinds = (ctypes.c_void_p, ctypes.c_char_p, i32, ctypes.POINTER(i32), i32, flag, flag)
        n = self._of("llama_tokenize", i32, *kinds)(self.vocab, text, len(text), ids, most, True, False)
        if n < 0:
            raise SystemExit("the text cannot be tokenized")
        return list(ids[:n])

    def forget(self) -> None:
        self._clear(self._memory(self._context), True)

    def feed(self, tokens: list[int], start: int) -> None:
        """Decode at positions from ``start`` on, every token with its logits, as llama-imatrix does."""
        n, i32 = len(tokens), ctypes.c_int32
        zero = (i32 * 1)(0)
        sequences = (ctypes.POINTER(i32) * n)(*[ctypes.cast(zero, ctypes.POINTER(i32))] * n)
        positions, ones = (i32 * n)(*range(start, start + n)), (i32 * n)(*[1] * n)
        batch = Batch(n, (i32 * n)(*tokens), None, positions, ones, sequences, (ctypes.c_int8 * n)(*[1] * n))
        if self._decode(self._context, batch):
            raise SystemExit("decode failed")

    def sample(self, chance: random.Random) -> int:
        """The next token, drawn as llama-server draws by default: of the likeliest that are not too unlikely."""
        import numpy as np

        logits = np.ctypeslib.as_array(self._logits(self._context, -1), (self._n_vocab,))
        best = np.argsort(-logits)[:TOP]
        above = logits[best] - logits[best[0]]
        share = np.exp(above) / np.exp(above).sum()
        kept = (np.cumsum(share) - share < TOP_SHARE) & (share >= LEAST_SHARE * share[0])
        weights = np.exp(above[kept] / TEMPERATURE)
        return int(chance.choices(best[kept].tolist(), weights.tolist())[0])


def run(engine: Engine, job: dict[str, Any], recorder: Recorder) -> dict[str, Any]:
    """``[{block: [token, slot]}]`` of the text and of what the model writes after it."""
    with open(job["text"], "rb") as file:
        tokens = engine.tokens(file.read().removesuffix(b"\n"))
    n, most = job["chunk"], len(tokens) // job["chunk"]
    chunks = min(most, job["chunks"])
    if chunks < 1:
        raise SystemExit(f"the text has {len(tokens)} tokens, a chunk {n}")
    prefill, decode, whole, bos = [], [], chunks * n + job["answer"], engine.bos
    say(done=0, of=whole)
    for i in range(chunks):
        part = tokens[i * n : (i + 1) * n]
        engine.forget()
        engine.feed([part[0] if bos is None else bos, *part[1:]], 0)
        prefill.append(recorder.taken(n))
        say(done=(i + 1) * n, of=whole)
    chance = random.Random(job["seed"])
    for i in range(job["answer"]):
        engine.feed([engine.sample(chance)], n + i)
        decode.append(recorder.taken(1))
        if i % 16 == 15 or i == job["answer"] - 1:
            say(done=chunks * n + i + 1, of=whole)
    return {"prefill": prefill, "decode": decode}


def main(path: str, text: str) -> None:
    job: dict[str, Any] = json.loads(text)
    try:
        library = Library(path)
        recorder = Recorder(library)
        taken = run(Engine(library, job, recorder), job, recorder)
    except AttributeError as error:
        raise SystemExit(f"this libllama lacks {error}") from None
    import numpy as np  # never before libllama: the CUDA build of b11549 then dies while it loads a model

    blocks = sorted({block for parts in taken.values() for part in parts for block in part})
    if not blocks:
        raise SystemExit("no router was seen: the model has no routed experts, or its graph names them otherwise")
    arrays: dict[str, Any] = {
        name: np.concatenate([np.stack([part[block] for block in blocks], axis=1) for part in parts])
        for name, parts in taken.items()
        if parts
    }
    np.savez(job["out"], allow_pickle=False, layers=np.array(blocks, np.uint16), **arrays)
    say(done=job["out"])


if __name__ == "__main__":
    main(*sys.argv[1:3])
