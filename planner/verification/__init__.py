"""Verifying a plan on the real engine: the half that starts, asks and watches it."""

from planner.verification.flow import Running, foreseen, verified
from planner.verification.listener import Listener
from planner.verification.options import Options

__all__ = ["Listener", "Options", "Running", "foreseen", "verified"]
