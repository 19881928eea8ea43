"""The display of a run's progress, and the final table.

On a terminal and in a notebook a table is updated in place. Elsewhere, and with ``--json``, a line is printed to stderr
every few seconds, and stdout is left to the result. An output that fails, e.g. a closed pipe, never fails the run: the
progress is then not shown. rich, which draws, is imported only where something is drawn, as it takes 2 MB.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Final, Literal, Self, TextIO

from ..records.columns import ROUNDS, Columns
from ..records.records import EventRecord, Record
from ..records.result import PeerSummary, Result
from ..records.units import count_text
from .command_line import between_words, columns_of
from .live_table import Board
from .news import News
from .notebook import Place, in_notebook
from .phrases import SPACES, between_phrases

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from .echo import UnechoedLive

LINE_EVERY_S: Final = 2.0
"""The least number of seconds between two lines, where the output is not a terminal."""
MOST_TOLD: Final = 3
"""The greatest number of events that one line prints in full."""

NOTEBOOK_EVERY_S: Final = 0.5
"""The least number of seconds between two states that a notebook shows."""
Mode = Literal["live", "notebook", "lines", "silent"]


@dataclass(frozen=True, slots=True)
class _Shown:
    """The shown time. `zero_s`: when it was 0: at the beginning of the display, and once a peer has `entered` the run,
    when the times in records were, so that the two can be compared. `stands_s`: the time at which it stands meanwhile,
    that of a resumed run's last record; None: it does not stand."""

    zero_s: float
    entered: bool = False
    stands_s: float | None = None


class Progress:
    """The display of one run's progress. Used as ``with Progress(steps=1000) as progress: progress.update(record)``;
    `update` may be called from any thread."""

    def __init__(
        self,
        *,
        steps: int = 0,
        columns: Columns = ROUNDS,
        quiet: bool = False,
        json: bool = False,
        clock: Callable[[], float] = time.monotonic,
        console: Console | None = None,
        errors: TextIO | None = None,
    ) -> None:
        """`steps`: local steps of each peer, 0: unknown; `columns`: name -> title of the conversation's columns;
        `quiet`: show nothing; `json`: stdout is for the result alone; `clock`: the present time in seconds; `console`:
        of stdout; `errors`: the stream of the lines where there is no terminal; None: stderr."""
        if console is not None:
            self._console = console
        self._errors = errors or sys.stderr
        self._clock = clock
        self._shown = _Shown(clock())
        self._board = Board(steps=steps, columns=columns)
        self._lock = threading.Lock()
        self._news = News()
        self._untold: list[EventRecord] = []
        self._changed = False
        self._last_line = -math.inf
        self._live: UnechoedLive | Place | threading.Timer | None = None
        """The table that is shown, or the timer of the first line."""
        drawn = not json and (console is not None or sys.stdout.isatty())
        self.mode: Final[Mode] = "silent" if quiet else "notebook" if in_notebook() else self._choose(drawn)

    def _choose(self, drawn: bool) -> Mode:
        return "live" if drawn and self._console.is_terminal and not self._console.is_dumb_terminal else "lines"

    @cached_property
    def _console(self) -> Console:
        from rich.console import Console

        return Console(force_terminal=sys.stdout.isatty())

    @property
    def _table(self) -> UnechoedLive | None:
        """The live table, if it is shown."""
        return None if isinstance(self._live, Place | threading.Timer) else self._live

    def joins(self) -> None:
        """Note that the run began elsewhere, and this process's peer joins it: until its first exchange the display
        says so."""
        self._board.joins()

    def gathers(self, here: str) -> None:
        """Note how many peers have come (`here`, as text: "2 of 4 peers") of those for which the run waits before it
        begins, and show it when it is due."""
        with self._lock:
            self._board.gathers(here)
            if self._clock() - self._shown.zero_s >= LINE_EVERY_S:  # the peers of one machine are together before
                self._due()

    def watches(self, metric: str) -> None:
        """Note that the run ends by the value of this metric; "": it does not."""
        self._board.watched = metric

    def goes_on(self, recorded_s: float, before: Iterable[PeerSummary]) -> None:
        """Note, in the context of this object and before the first `update`, that the run is resumed, if it has
        records. `recorded_s`: the time of the last one, in seconds since the run began, which is shown until a peer
        enters the run; 0: there is none. `before`: the totals of its peers so far."""
        self._shown = replace(self._shown, stands_s=recorded_s or None)
        self._board.goes_on(before)

    def update(self, record: Record) -> None:
        """Take a record of any peer into account, and show it when it is due."""
        with self._lock:
            if isinstance(record, EventRecord) and record.is_entry and not self._shown.entered:
                self._shown = _Shown(self._clock() - record.time_s, entered=True)
            self._board.update(record)
            if self.mode == "lines" and isinstance(record, EventRecord):
                self._untold.append(record)
            self._due()

    def _due(self) -> None:
        """Note that the state has changed, and show it if that is due."""
        self._changed = True
        if self.mode == "notebook" and self._clock() - self._last_line >= NOTEBOOK_EVERY_S:
            self._show()
        if self.mode == "lines" and self._clock() - self._last_line >= LINE_EVERY_S:
            self._line()

    def __enter__(self) -> Self:
        self._shown = _Shown(self._clock())
        if self.mode == "live":
            from .echo import UnechoedLive

            self._live = UnechoedLive(
                get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True
            )
            self._live.start()
        elif self.mode == "notebook":
            self._live = Place()
            self._show()
        elif self.mode == "lines":
            self._live = threading.Timer(LINE_EVERY_S, self._waits)
            self._live.daemon = True
            self._live.start()
        return self

    def _waits(self) -> None:
        """Print a line if there was none yet: this peer may wait for others for long before it has a record."""
        with self._lock:
            if self._last_line == -math.inf:
                self._line()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._news.tell(str(error))
        if isinstance(self._live, threading.Timer):
            self._live.cancel()
        if (live := self._table) is not None:
            live.transient = error is None  # the last state helps to find the error
            self._live = None
            with contextlib.suppress(OSError):
                live.stop()
        elif self._changed and self.mode in ("lines", "notebook"):
            with self._lock:
                self._line() if self.mode == "lines" else self._show()

    def ended(self, result: Result) -> None:
        """Note that the run is over. A notebook then shows the result in a few phrases, in place of the last state."""
        if isinstance(self._live, Place):
            from .final_table import headline
            from .fitting import Phrases

            self._live.show(Phrases(headline(result)), SPACES.join(headline(result)))

    def say(self, line: str) -> bool:
        """Print `line` above the live table, which output by other means would disturb. Returns False, and prints
        nothing, if there is no live table."""
        if self._table is None:
            return False
        from rich.text import Text

        self._console.print(Text(line), soft_wrap=True)  # the terminal wraps it: it can be copied as one line
        return True

    def tells(self, why: str) -> None:
        """Note that `why` is printed by other means. Events that end a peer for a reason in `why` are then printed
        without it."""
        with self._lock:
            self._news.tell(why)

    def _render(self) -> RenderableType:
        with self._lock:
            return self._board.render(self._took_s, self._console.width)

    def _show(self) -> None:
        """Show the present state in the notebook."""
        assert isinstance(self._live, Place)
        self._last_line = self._clock()
        self._live.show(self._board.render(self._took_s, self._console.width), self._board.headline(self._took_s))

    @property
    def _took_s(self) -> float:
        shown = self._shown
        return self._clock() - shown.zero_s if shown.stands_s is None else shown.stands_s

    def _line(self) -> None:
        now = self._clock()
        told = [text for event in self._untold if (text := self._news.text(event))]
        more = len(told[MOST_TOLD:])
        events = [*told[:MOST_TOLD], *([f"and {count_text(more, 'more event')}"] if more else [])]
        self._last_line, self._changed, self._untold = now, False, []
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or it was closed
            if self._errors.isatty():  # which would break a long line within a word
                columns = columns_of(self._errors)
                folded = between_phrases(self._board.phrases(self._took_s, columns), columns)
                text = "\n".join([*folded, *(between_words(event, self._errors) for event in events)])
            else:
                text = "; ".join([self._board.headline(self._took_s), *events])
            print(text, file=self._errors, flush=True)
