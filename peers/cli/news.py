"""The events that are printed as lines while a run goes on, each reason once.

One fault makes several events: the peer that has it records an error, and each of the others that this peer has left.
Peers whose numbers are equal fail alike. Their reasons then differ in numbers at most, e.g. of the local step.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from ..records.records import EventRecord
from ..records.units import event_text

ROUTINE: Final = ("started", "present", "checkpoint", "silent")
"""Events that are not printed. Silent members are named by the reason of the event `waiting`, which is printed, and
members that a newcomer finds by the result."""
_ENDS: Final = ("error", "left", "lost")
_NUMBER: Final = re.compile(r"\d+")


class News:
    """Chooses the events of one run to print, and leaves out reasons that were printed. `text` is to be called with
    each event, in order."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}
        """Each peer's last event, and the reason if that was a stall, which is recorded repeatedly."""
        self._ends: set[tuple[str, str]] = set()
        """Peers that have ended, each with a reason that was given."""
        self._told: set[str] = set()
        """The reasons of ends that were printed."""
        self._elsewhere = ""
        """The text that is printed by other means."""

    def tell(self, why: str) -> None:
        """Note that the text `why`, which may contain reasons, is printed by other means. Events that end a peer for
        one of these reasons are printed without it."""
        self._elsewhere += f"{_alike(why)}\n"

    def text(self, event: EventRecord) -> str:
        """The text to print for `event`; "": it is routine, repeats the last event of its peer, or is an error for a
        reason with which that peer's end was printed before. The reason is left out of the text of an end (`error`,
        `left`, `lost`) if it was printed before: of this peer, of any peer's error, or by other means."""
        now = event.event, event.why if event.event == "stalled" else ""
        known, self._last[event.subject] = self._last.get(event.subject), now
        if event.event in ROUTINE or now == known:
            return ""
        if event.event not in _ENDS or not event.why:
            return event_text(event)
        why = _alike(event.why)
        own, is_error = (event.subject, why) in self._ends, event.event == "error"
        is_told = own or why in self._elsewhere or (is_error and why in self._told)
        self._ends.add((event.subject, why))
        self._told.add(why)
        return "" if own and is_error else event_text(replace(event, why="") if is_told else event)


def _alike(why: str) -> str:
    return _NUMBER.sub("#", why)
