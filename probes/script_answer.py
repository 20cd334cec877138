"""``script_answer.py LIBRARY JSON``: loads a model with the embedded engine and answers questions from standard input.

Started as a process of its own. Every line of its output that begins with ``@@`` is an event in the words of
llama-server's streams (``content``, ``tokens``, ``prompt_progress``, ``timings``); the rest is llama.cpp's log.
Questions are JSON lines ``{"prompt", "n_predict", "chat", "exact"}`` or ``{"tokenize"}``. Ends when its input does.
Symbols: include/llama.h of b11312, through the bindings of llama-cpp-python.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

PIECE = 256


def say(event: dict[str, Any]) -> None:
    """One event in one write, on a line of its own whatever the log has left open."""
    os.write(1, b"\n@@" + json.dumps(event).encode() + b"\n")


class Engine:
    """A model with one context, after the settings of ``moeplan``."""

    def __init__(self, lc: Any, job: dict[str, Any]) -> None:
        self._lc = lc
        params = lc.llama_model_default_params()
        for name, value in job["model"].items():
            setattr(params, name, value)
        model = lc.llama_model_load_from_file(os.fsencode(job["path"]), params)
        if not model:
            raise SystemExit("the file does not load")
        self._vocab = lc.llama_model_get_vocab(model)
        self._template = lc.llama_model_chat_template(model, None)
        params = lc.llama_context_default_params()
        for name, value in job["context"].items():
            setattr(params, name, value)
        self._n_batch = job["context"]["n_batch"]
        self._context = lc.llama_init_from_model(model, params)
        if not self._context:
            raise SystemExit("no context: memory for it could not be taken")
        self._greedy = lc.llama_sampler_init_greedy()

    def tokens(self, text: bytes, *, special: bool) -> list[int]:
        """Ids of a text."""
        room = len(text) + 16
        found = (self._lc.llama_token * room)()
        n = self._lc.llama_tokenize(self._vocab, text, len(text), found, room, special, special)
        if n < 0:
            raise SystemExit("the text does not tokenize")
        return list(found[:n])

    def chat(self, text: str) -> list[int]:
        """Ids of a question in the model's template; of the bare text where llama.cpp does not know the template."""
        lc, raw = self._lc, text.encode()
        message = lc.llama_chat_message(role=b"user", content=raw)
        out = ctypes.create_string_buffer(4 * len(raw) + 4096)
        n = lc.llama_chat_apply_template(self._template, (lc.llama_chat_message * 1)(message), 1, True, out, len(out))
        return self.tokens(out.raw[:n] if 0 < n <= len(out) else raw, special=True)

    def prefill(self, prompt: list[int]) -> Iterator[int]:
        """Compute a prompt from an empty cache; yields how many tokens are done."""
        self._lc.llama_memory_clear(self._lc.llama_get_memory(self._context), True)
        for start in range(0, len(prompt), self._n_batch):
            part = prompt[start : start + self._n_batch]
            self._decode(part)
            yield start + len(part)

    def _decode(self, part: list[int]) -> None:
        ids = (self._lc.llama_token * len(part))(*part)  # the batch only points to them
        if self._lc.llama_decode(self._context, self._lc.llama_batch_get_one(ids, len(part))):
            raise SystemExit("decode failed")
        self._lc.llama_synchronize(self._context)

    def answer(self, n_predict: int, *, to_the_end: bool) -> Iterator[tuple[int, bytes]]:
        """The likeliest tokens with their text; ends at an end token unless ``to_the_end``."""
        out = ctypes.create_string_buffer(PIECE)
        for n in range(n_predict):
            token = self._lc.llama_sampler_sample(self._greedy, self._context, -1)
            if not to_the_end and self._lc.llama_vocab_is_eog(self._vocab, token):
                return
            length = self._lc.llama_token_to_piece(self._vocab, token, out, PIECE, 0, False)
            yield token, out.raw[: max(length, 0)]
            if n + 1 < n_predict:
                self._decode([token])


def reply(engine: Engine, question: dict[str, Any]) -> None:
    """Answer one question with events."""
    if "tokenize" in question:
        say({"ids": engine.tokens(question["tokenize"].encode(), special=False)})
        return
    prompt = question["prompt"]
    ids = prompt if isinstance(prompt, list) else engine.chat(prompt)
    start = time.perf_counter()
    for done in engine.prefill(ids):
        say({"prompt_progress": {"processed": done}})
    middle, n, open_bytes = time.perf_counter(), 0, b""
    for token, piece in engine.answer(question["n_predict"], to_the_end=bool(question["exact"])):
        n += 1
        open_bytes += piece
        text = open_bytes.decode("utf-8", "ignore" if len(open_bytes) > 8 else "strict") if _whole(open_bytes) else ""
        open_bytes = b"" if text or not open_bytes else open_bytes
        say({"content": text, "tokens": [token]})
    timings = {
        "prompt_n": len(ids),
        "prompt_ms": (middle - start) * 1e3,
        "predicted_n": n,
        "predicted_ms": (time.perf_counter() - middle) * 1e3,
    }
    say({"timings": timings})


def _whole(data: bytes) -> bool:
    """Whether a text ends with a whole character, or never will."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return len(data) > 8
    return True


def main(text: str) -> None:
    import llama_cpp as lc

    lc.llama_log_set(lc.llama_log_callback(), ctypes.c_void_p(0))  # none of ours: llama.cpp writes to stderr itself
    lc.llama_backend_init()
    engine = Engine(lc, json.loads(text))
    say({"ready": True})
    for line in sys.stdin:
        reply(engine, json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1])
