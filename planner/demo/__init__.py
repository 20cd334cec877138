"""``moeplan demo``: a small mixture-of-experts GGUF that llama.cpp really runs.

A dense model becomes a mixture: every expert is a copy of its FFN and the router is random, so the text is
the dense model's while routing depends on the token as in a real mixture.
"""

from __future__ import annotations

from planner.demo.write import DemoModel, write

__all__ = ["DemoModel", "write"]
