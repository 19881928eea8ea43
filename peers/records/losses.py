"""The lost peers of a run, from the records of all peers, and those of them that came back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from .records import EventRecord
from .result import Lost

_COMES = ("joined", "back", "resumed", "awake")


class Losses:
    """The last loss of each peer, from the events given to `update` in order of time. Several peers record one loss:
    the earliest record counts, until the peer is back."""

    def __init__(self) -> None:
        self._lost: dict[str, Lost] = {}

    def update(self, event: EventRecord) -> None:
        """Take an event of any peer into account. Only losses and returns have an effect."""
        peer, known = event.subject, self._lost.get(event.subject)
        if event.event == "lost" and (known is None or known.back or event.time_s < known.when):
            self._lost[peer] = Lost(peer=peer, when=event.time_s, why=event.why)
        elif event.event in _COMES and known is not None and event.time_s >= known.when:
            self._lost[peer] = replace(known, back=True)

    @property
    def lost(self) -> tuple[Lost, ...]:
        """Every lost peer, also one that is back, in order of time."""
        return _in_order(self._lost.values())


def with_known(told: Iterable[Lost], known: Iterable[Lost]) -> tuple[Lost, ...]:
    """The peers that other peers recorded as lost (`told`), in order of time, then those that only the launcher or the
    simulation knows to be lost. `known`: all that these know, who are lost at the end. They know the reason, and when a
    process ended, which others notice later."""
    ends = {peer.peer: peer for peer in known}
    found = {peer.peer: _known_better(peer, ends.get(peer.peer)) for peer in told}
    return (*_in_order(found.values()), *(peer for name, peer in ends.items() if name not in found))


def _known_better(told: Lost, known: Lost | None) -> Lost:
    if known is None:
        return told
    return known if told.back else replace(known, when=min(told.when, known.when))


def _in_order(lost: Iterable[Lost]) -> tuple[Lost, ...]:
    return tuple(sorted(lost, key=lambda one: one.when))
