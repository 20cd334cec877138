"""Verifying a plan on the real engine: the half that starts, asks and watches it."""
