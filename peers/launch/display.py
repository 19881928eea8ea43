"""The port of the output to which a run is shown."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Protocol

from ..records.records import Record
from ..records.result import PeerSummary, Result
from ..records.tally import Tally


class Display(Protocol):
    """The output to which a run is shown. `heard`: totals of the records so far."""

    heard: Tally

    def __enter__(self) -> object: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def goes_on(self, recorded_s: float, before: Iterable[PeerSummary]) -> None:
        """Note that the run is resumed, if it has records. `recorded_s`: the time of the last one, in seconds since the
        run began; 0: there is none. `before`: the totals of its peers so far."""

    def gathers(self, here: str) -> None:
        """Note how many peers have come (`here`, as text: "2 of 4 peers") of those for which the run waits before it
        begins."""

    def put(self, record: Record) -> None:
        """Show a record of any peer, and count it in `heard`."""

    def say(self, line: str) -> None:
        """Show a line to the user."""

    def tells(self, why: str) -> None:
        """Note that the user is told `why` by other means, so that an event need not tell that reason again."""

    def end(self, result: Result) -> str:
        """Write the result to the run's folder, and show it. Returns the reason if it could not be written, else ""."""
