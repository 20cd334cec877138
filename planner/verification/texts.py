"""What is asked when the user asks nothing, and prose to fill long prompts with: random tokens would route evenly."""

from __future__ import annotations

from typing import Final

QUESTION: Final = "Why is the sky blue? Answer in a few sentences."

PROSE: Final = """
The lighthouse keeper kept two ledgers. In the first he wrote what the sea did: the hour of each tide, the direction
of the wind, the ships that passed and the ones that did not. In the second he wrote what he had expected, a day in
advance, so that he could learn how wrong he was. On most days the two agreed within an hour or a point of the compass.
On the days when they did not, he underlined the difference in red and looked for the reason.

A reason was not always there. Sometimes the glass had fallen for no storm that anyone could find; sometimes a fleet
that had been promised stayed in port because a baker had died. He learned to tell a mistake of his own from a change
in the world by asking a simple question: would the same guess have been right last month? If so, the world had moved.
If not, the guess had been poor all along, and luck had covered it.

def tide(hours, period=12.42, height=3.1):
    phase = 2 * 3.14159 * (hours % period) / period
    return height * cos(phase)

In spring a young engineer came to repair the lamp. She measured the lens, counted the turns of the clockwork and
asked for the second ledger. "You have thirty years of forecasts here," she said, "and nobody has ever added them up."
They spent the evening doing so. The wind from the north-west was the hardest to foresee: one guess in three had failed.
The tides were the easiest: 98.7 percent within twenty minutes. Rain lay between, and fog was hardly better than a coin.

She drew a table with four columns: what was expected, what was seen, how often, and what it had cost to be wrong. The
last column surprised him. Fog, which he foresaw so badly, had cost nothing, since the lamp was lit in any case. The
wind had cost two boats. "Then it is the wind that we should study," she said, and he agreed, and opened a third ledger.
"""
