"""What llama-server logs about its memory and placement with ``-lv 4`` (b11549).

``load_tensors: CUDA0 model buffer size = 805.07 MiB``, ``llama_kv_cache: CPU KV buffer size = …``,
``… compute buffer size = …``, ``… output buffer size = …``, ``offloaded 29/49 layers to GPU``. Compare by eye with
``llama-server … -lv 4 2>&1 | grep 'buffer size'``.
"""

from __future__ import annotations

import re
from typing import Final

from planner.facts.observed import Buffer, Placement
from planner.units import MIB

LEVEL: Final = ("-lv", "4")
"""Sizes need level 4 (facts of b11312 to b11549); ``--log-verbosity`` is as old as the server."""

_SIZE: Final = re.compile(r": +(\S{1,64}) +(\S[^:=]{0,40}?) buffer size = +(\d{1,9}(?:\.\d{1,4})?) MiB", re.ASCII)
_LAYERS: Final = re.compile(r"offloaded (\d{1,5})/(\d{1,5}) layers to GPU", re.ASCII)
_UNPINNED: Final = re.compile(r"failed to allocate (\d{1,9}(?:\.\d{1,4})?) MiB of pinned memory", re.ASCII)
"""ggml/src/ggml-cuda/ggml-cuda.cu, b11434: it goes on with pageable memory."""
_KINDS: Final = {"model": "model", "compute": "compute", "output": "output"}


def parse(lines: tuple[str, ...]) -> Placement:
    """Buffers in the order of the log. KV, recurrent state, indexer and expert caches are all ``context``."""
    buffers, offloaded, unpinned = [], None, None
    for line in lines:
        if found := _SIZE.search(line):
            kind = _KINDS.get(found[2].split()[-1], "context")
            buffers.append(Buffer(found[1], kind, round(float(found[3]) * MIB)))
        elif layers := _LAYERS.search(line):
            offloaded = (int(layers[1]), int(layers[2]))
        elif failed := _UNPINNED.search(line):
            unpinned = round(float(failed[1]) * MIB)
    return Placement(tuple(buffers), offloaded=offloaded, unpinned_bytes=unpinned)
