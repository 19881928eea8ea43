"""Decides when a worker of the parameter server evaluates the model."""

from __future__ import annotations

from ..conversation import Outcome
from ..members.presence import Presence
from .tenure import workers_of


async def is_evaluated(outcome: Outcome, every: int, presence: Presence) -> bool:
    """Whether the model is evaluated after the turn with this `outcome`: by each worker after its last turn, and by the
    first worker of the view also after each `every` turns. `every` 0: never. Raises as `Presence.view`."""
    if not every or not (outcome.last or outcome.version % every == 0):
        return False
    view = await presence.view()
    return outcome.last or next(iter(workers_of(view)), None) == presence.me
