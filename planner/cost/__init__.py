"""Bytes and seconds of any settings, from facts alone: pure, no I/O."""
