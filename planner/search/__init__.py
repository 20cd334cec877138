"""From rules to a plan: narrow, enumerate, fit, compare, explain."""

from planner.search.check import judge, stopped
from planner.search.decide import plan

__all__ = ["judge", "plan", "stopped"]
