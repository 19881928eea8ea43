"""A schedule as messages: a message is everything that one rank sends to another in one step."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, zip_longest
from typing import Any, NamedTuple

from .schedule import Op, Schedule, Step

KEPT_WORLD = 64
"""Results for at most this many ranks are cached: they are asked for repeatedly. Those for more ranks take much
memory."""


class Message(NamedTuple):
    """All parts that one rank sends to another in one step. ``parts``: in the order of sending; ``added``: those that
    the receiver adds to its own; it copies the others."""

    sender: int
    receiver: int
    parts: tuple[int, ...]
    added: tuple[int, ...]


def messages(schedule: Schedule, world: int) -> Iterable[Sequence[Message]]:
    """For each step of the allreduce, the messages that all ranks send in it: first each rank's first message, then
    each rank's second one, and so on."""
    value: Any = schedule  # it is hashable, which mypy cannot know of a protocol
    return _kept(value, world) if world <= KEPT_WORLD else _messages(schedule, world)


@lru_cache(maxsize=64)
def _kept(schedule: Any, world: int) -> tuple[tuple[Message, ...], ...]:
    return tuple(_messages(schedule, world))


def _messages(schedule: Schedule, world: int) -> Iterator[tuple[Message, ...]]:
    plans = [schedule.steps(rank, world) for rank in range(world)]
    return (_interleaved(steps) for steps in zip_longest(*plans, fillvalue=Step()))


def _interleaved(steps: Sequence[Step]) -> tuple[Message, ...]:
    added: dict[int, set[int]] = {}  # by sender and receiver as one number, because a large world has very many pairs
    for rank, step in enumerate(steps):
        for receipt in step.receive:
            if receipt.op is Op.ADD:
                added.setdefault(receipt.peer * len(steps) + rank, set()).add(receipt.part)
    by_place: list[list[Message]] = []
    for rank, step in enumerate(steps):
        by_peer: dict[int, list[int]] = {}
        for transfer in step.send:
            by_peer.setdefault(transfer.peer, []).append(transfer.part)
        by_place.extend([] for _ in range(len(by_peer) - len(by_place)))
        for row, (peer, sent) in zip(by_place, by_peer.items(), strict=False):
            adds, parts = added.get(rank * len(steps) + peer, ()), tuple(sent)
            every = len(adds) == len(parts)
            row.append(Message(rank, peer, parts, parts if every else tuple(part for part in parts if part in adds)))
    return tuple(chain.from_iterable(by_place))
