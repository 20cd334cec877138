"""moeplan: how to start llama.cpp for one mixture-of-experts GGUF on one machine."""

__version__ = "0.1.0"
