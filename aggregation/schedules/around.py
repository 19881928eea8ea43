"""Finds a schedule that sends nothing between ranks that cannot reach each other."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

from .messages import messages
from .relabelled import Relabelled
from .relayed import Pair, Relayed
from .schedule import Schedule
from .sharded import Sharded


def around(schedule: Schedule, apart: tuple[Pair, ...], world: int) -> Schedule:
    """The first schedule that sends nothing between the pairs of ranks in ``apart``, each with its lower rank first:
    ``schedule`` itself, or with the ranks in another order, or else the relayed schedule. Returns ``schedule``
    unchanged where none of these avoids the pairs. The result is the same on every rank."""
    value: Any = schedule  # it is hashable, which mypy cannot know of a protocol
    found: Schedule = _around(value, apart, world) if apart else value
    return found


@lru_cache(maxsize=256)
def _around(schedule: Any, apart: tuple[Pair, ...], world: int) -> Any:
    order = None if isinstance(schedule, Sharded) else _order(_edges(schedule, world), apart, world)
    if order is not None:
        return schedule if order == list(range(world)) else Relabelled(schedule, tuple(order))
    relayed = Relayed(apart)
    try:
        relayed.steps(0, world)
    except ValueError:
        return schedule
    return relayed


def _edges(schedule: Schedule, world: int) -> set[Pair]:
    sent = (message for step in messages(schedule, world) for message in step)
    return {(min(one.sender, one.receiver), max(one.sender, one.receiver)) for one in sent}


def _order(edges: set[Pair], apart: Sequence[Pair], world: int) -> list[int] | None:
    """The rank at each place, such that no two ranks that are apart have places with an edge between them. Starting
    with the usual order, the first helpful swap of two ranks is applied repeatedly. None where that fails."""
    place = list(range(world))

    def meeting() -> list[Pair]:
        return [(a, b) for a, b in apart if (min(place[a], place[b]), max(place[a], place[b])) in edges]

    def swaps(pairs: Sequence[Pair]) -> Iterator[Pair]:
        return ((rank, other) for pair in pairs for rank in reversed(pair) for other in range(world) if other != rank)

    while met := meeting():
        for rank, other in swaps(met):
            place[rank], place[other] = place[other], place[rank]
            if len(meeting()) < len(met):
                break
            place[rank], place[other] = place[other], place[rank]
        else:
            return None
    return sorted(range(world), key=place.__getitem__)
