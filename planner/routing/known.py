"""A model with what a routing file says about it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.facts.model import Model


def routed(model: Model, path: str | None, *, every_policy: bool = False) -> Model:
    """A model with what a routing file says about it; as it is without one.

    Args:
        every_policy: with the curves of pools that llama.cpp cannot run, too: seconds more.

    Raises:
        RoutingFileError, ModelFileError: the file cannot be read, or belongs to another model.
    """
    if path is None:
        return model
    from planner.routing.analysis import analyse, replay_notes
    from planner.routing.load import load
    from planner.routing.shape import notes, shape_of

    shape, recording = shape_of(model), load(path, model)
    stats = analyse(recording, shape.bytes_of(recording.layers), every_policy=every_policy)
    return replace(model, routing=stats, notes=model.notes + notes(recording, shape) + replay_notes(recording))
