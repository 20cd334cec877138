"""A GGUF file (or its shards, or its URL) to a ``Model``: ``analyze.analyze`` is the door."""
