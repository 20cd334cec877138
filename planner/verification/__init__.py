"""Verifying a plan on the real engine: the half that starts, asks and watches it."""

from planner.verification.flow import Options, Running, first_attempts, verified
from planner.verification.listener import Listener

__all__ = ["Listener", "Options", "Running", "first_attempts", "verified"]
