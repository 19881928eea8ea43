"""The peers that came from elsewhere, from the events and exchanges of the peers that saw them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Set
from dataclasses import replace

from .elsewhere import Elsewhere
from .records import EventRecord, ExchangeRecord
from .run import natural


class _Comer:
    """A peer that other peers saw join, or that was there when one joined. `joined`: the first record of that;
    `since`: the generation in which it joined last; `exchanges`: the number of exchanges of which it was a member;
    `gone`: the record of its end."""

    def __init__(self, joined: EventRecord) -> None:
        self.joined, self.since, self.exchanges = joined, joined.generation, 0
        self.gone: EventRecord | None = None

    def was_in(self, generation: float | None) -> bool:
        """Whether the peer was a member in that generation. None, for records without generations: whether it is a
        member now."""
        if generation is None:
            return self.gone is None
        return self.since <= generation and (self.gone is None or generation < self.gone.generation)

    def told(self) -> Elsewhere:
        known = Elsewhere(
            peer=self.joined.subject,
            exchanges=self.exchanges,
            joined_s=self.joined.time_s,
            role=self.joined.about_role,
        )
        if self.gone is None:
            return known
        return replace(known, gone=self.gone.event, gone_s=self.gone.time_s, why=self.gone.why)


class Comers:
    """The peers that others saw join or found there, by the records given to `follow` and `were_in` in order of
    time."""

    def __init__(self) -> None:
        self._came: dict[str, _Comer] = {}
        self._last: int | None = None
        """Number of the last exchange since the run was started or resumed last, 0: none; None: it went on from before
        the records since then."""
        self._lives = Counter[str]()
        """How often each peer has resumed the run."""

    def follow(self, event: EventRecord, *, alone: bool) -> None:
        """Take an event into account. `alone`: all records so far are of this event's peer."""
        comer = self._came.get(event.subject)
        if event.event in ("joined", "present", "back") and event.about:
            if comer is None and event.event != "back":
                self._came[event.about] = _Comer(event)
            elif comer is not None and comer.gone is not None and event.generation >= comer.gone.generation:
                comer.since, comer.gone = event.generation, None
        elif event.event in ("left", "lost") and comer is not None and comer.gone is None:
            comer.gone = event if event.generation >= comer.since else None
        elif event.event == "started":
            self._last = self._last or 0
        elif event.event == "joined" and alone:  # again, and nobody here has seen who left
            for other in self._came.values():
                if other.gone is None:
                    other.gone = replace(event, event="left", why="it was gone when this peer came back")
        elif event.event == "resumed":
            self._resume(event)

    def _resume(self, event: EventRecord) -> None:
        for other in self._came.values():
            if other.gone is None and event.generation < other.since:  # views are counted anew: the run began again
                other.gone = replace(event, event="left", why="the run was resumed without it")
        if self._lives[event.peer] >= max(self._lives.values(), default=0):
            self._last = None  # exchanges since the checkpoint are made again
        self._lives[event.peer] += 1

    def were_in(self, record: ExchangeRecord, *, of_server: bool) -> None:
        """Count an exchange for the peers that were members in it. `of_server`: the record is a server's, which tells
        of all exchanges since its last one."""
        last, self._last = self._last, max(self._last or 0, record.version)
        if record.caught_up or (last is not None and record.version <= last):
            return
        made = record.version - last if of_server and last is not None else 1
        for comer in self._came.values():
            comer.exchanges += made * comer.was_in(record.details.get("generation"))

    def told(self, *, but: Set[str]) -> tuple[Elsewhere, ...]:
        """These peers but those of the names in `but`, in natural order of their names."""
        return tuple(self._came[name].told() for name in sorted(self._came.keys() - but, key=natural))
