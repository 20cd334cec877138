"""From rules to a plan: narrow, enumerate, fit, compare, explain."""

from planner.search.check import judge, stopped
from planner.search.decide import plan
from planner.search.pricing import Pricing, pricing

__all__ = ["Pricing", "judge", "plan", "pricing", "stopped"]
