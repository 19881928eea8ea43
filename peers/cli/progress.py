"""The display of a run's progress, and the final table.

On a terminal and in a notebook a table is updated in place. Elsewhere a line is printed to stderr every few seconds,
and stdout is left to the result. An output that fails, e.g. a closed pipe, never fails the run: the progress is then
not shown.
"""

from __future__ import annotations

import contextlib
import math
import sys
import threading
import time
from collections.abc import Callable, Set
from types import TracebackType
from typing import Final, Literal, Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Column
from rich.text import Text

from ..records.columns import ROUNDS, Columns
from ..records.records import EventRecord, Record
from ..records.result import PeerSummary, Result
from ..records.units import (
    bytes_text,
    count_text,
    loss_text,
    metric_texts,
    moment_text,
    peer_label,
    peers_text,
    plain,
    seconds_text,
    stay_text,
)
from .echo import UnechoedLive
from .fitting import Folded, Phrases
from .live_table import MOST_ROWS, SLOWEST, Board
from .news import News
from .notebook import Place, in_notebook

LINE_EVERY_S: Final = 2.0
"""The least number of seconds between two lines, where the output is not a terminal."""
MOST_TOLD: Final = 3
"""The greatest number of events that one line prints in full."""

NOTEBOOK_EVERY_S: Final = 0.5
"""The least number of seconds between two states that a notebook shows."""
Mode = Literal["live", "notebook", "lines", "silent"]


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
        self._console = console or Console(force_terminal=sys.stdout.isatty())
        self._errors = errors or sys.stderr
        self._clock = clock
        self._started = clock()
        self._board = Board(steps=steps, columns=columns)
        self._lock = threading.Lock()
        self._news = News()
        self._untold: list[EventRecord] = []
        self._changed = False
        self._last_line = -math.inf
        self._live: Live | Place | None = None
        self.mode: Final[Mode] = self._choose(quiet, json)

    def _choose(self, quiet: bool, json: bool) -> Mode:
        if quiet:
            return "silent"
        if in_notebook():
            return "notebook"
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            return "silent" if json else "live"
        return "lines"

    def joins(self) -> None:
        """Note that the run began elsewhere, and this process's peer joins it: until its first exchange the display
        says so."""
        self._board.joins()

    def update(self, record: Record) -> None:
        """Take a record of any peer into account, and show it when it is due."""
        with self._lock:
            self._board.update(record)
            self._changed = True
            if self.mode == "notebook" and self._clock() - self._last_line >= NOTEBOOK_EVERY_S:
                self._show()
            if self.mode == "lines":
                if isinstance(record, EventRecord):
                    self._untold.append(record)
                if self._clock() - self._last_line >= LINE_EVERY_S:
                    self._line()

    def __enter__(self) -> Self:
        self._started = self._clock()
        if self.mode == "live":
            self._live = UnechoedLive(
                get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True
            )
            self._live.start()
        elif self.mode == "notebook":
            self._live = Place()
            self._show()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._news.tell(str(error))
        if isinstance(self._live, Live):
            self._live.transient = error is None  # the last state helps to find the error
            live, self._live = self._live, None
            with contextlib.suppress(OSError):
                live.stop()
        elif self._changed and self.mode in ("lines", "notebook"):
            with self._lock:
                self._line() if self.mode == "lines" else self._show()

    def say(self, line: str) -> bool:
        """Print `line` above the live table, which output by other means would disturb. Returns False, and prints
        nothing, if there is no live table."""
        if not isinstance(self._live, Live):
            return False
        self._console.print(Text(line), soft_wrap=True)  # the terminal wraps it: it can be copied as one line
        return True

    def tells(self, why: str) -> None:
        """Note that `why` is printed by other means. Events that end a peer for a reason in `why` are then printed
        without it."""
        with self._lock:
            self._news.tell(why)

    def _render(self) -> RenderableType:
        with self._lock:
            return self._board.render(self._clock() - self._started, self._console.width)

    def _show(self) -> None:
        """Show the present state in the notebook."""
        assert isinstance(self._live, Place)
        self._last_line, took_s = self._clock(), self._clock() - self._started
        self._live.show(self._board.render(took_s, self._console.width), self._board.headline(took_s))

    def _line(self) -> None:
        now = self._clock()
        told = [text for event in self._untold if (text := self._news.text(event))]
        more = len(told[MOST_TOLD:])
        texts = [
            self._board.headline(now - self._started),
            *told[:MOST_TOLD],
            *([f"and {count_text(more, 'more event')}"] if more else []),
        ]
        self._last_line, self._changed, self._untold = now, False, []
        with contextlib.suppress(OSError, ValueError):  # the reader has gone, or it was closed
            print("; ".join(texts), file=self._errors, flush=True)


def final_table(result: Result) -> RenderableType:
    """The table at the end of a run: its headline, each peer's totals, peers elsewhere, and lost peers."""
    return Group(Phrases(headline(result)), Text(), _peer_table(result), *_elsewhere(result), *_lost(result))


def headline(result: Result) -> list[str]:
    """The result in a few phrases: metrics, loss, rounds, peers, seconds."""
    return [
        *metric_texts(result.metrics, result.metric_scales, result.metrics_at, result.exchanges, result.noun),
        *([f"told by peer {plain(result.metrics_of, 40)}"] if result.metrics_of else []),
        *([f"best {told}" for told in _best(result)]),
        f"loss {loss_text(result.loss)}",
        count_text(result.exchanges, result.noun),
        peers_text(len(result.peers), sum(bool(peer.role) for peer in result.peers))
        + ("" if result.virtual_s is not None else " on this machine")
        + (f", {len(result.elsewhere):,} elsewhere" if result.elsewhere else "")
        + (f", {len(result.lost):,} lost" if result.lost else ""),
        seconds_text(result.wall_s),
        *([f"{seconds_text(result.virtual_s)} of virtual time"] if result.virtual_s is not None else []),
        *([f"ended: {plain(result.ended_why)}"] if result.ended_by not in (None, "steps") else []),
    ]


def _best(result: Result) -> list[str]:
    if (best := result.best) is None or best.value == result.metrics.get(best.metric):
        return []
    return metric_texts({best.metric: best.value}, result.metric_scales, best.at, result.exchanges, result.noun)


def _peer_table(result: Result) -> Folded:
    more = {name for name in ("bytes_shared", "hidden_s") if any(getattr(peer, name) for peer in result.peers)}
    moved = ("sent", "received", *(["shared"] if "bytes_shared" in more else []))
    spent = ("compute", "wait", "transfer", *(["hidden"] if "hidden_s" in more else []))
    heads = (f"{result.noun}s", "steps", *moved, *spent, "loss")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    names = Column("peer", no_wrap=True, max_width=24)
    table = Folded(names, *numbers)
    shown = result.peers
    if len(shown) > MOST_ROWS:
        shown = tuple(sorted(shown, key=lambda peer: (peer.role, peer.steps))[:SLOWEST])
    for peer in shown:
        table.add_row(Text(plain(peer_label(peer), 40)), *_cells(peer, more))
    if len(shown) < len(result.peers):
        table.add_row(f"+ {len(result.peers) - len(shown):,} more", *[""] * len(heads))
    if len(result.peers) > 1:
        table.add_row(f"all {len(result.peers):,}", *_cells(_sum(result), more), style="bold")
    return table


def _elsewhere(result: Result) -> list[Text]:
    """A line for each peer that joined from another machine and has its records there."""
    lines = [
        Text(f"elsewhere {plain(one.peer, 40)}: {stay_text(one, result.noun)}") for one in result.elsewhere[:MOST_ROWS]
    ]
    more = len(result.elsewhere) - len(lines)
    lines += [Text(f"and {more:,} more elsewhere")] if more else []
    return [Text(), *lines] if lines else []


def _lost(result: Result) -> list[Text]:
    lines = [
        Text(f"lost {plain(peer.peer, 40)} at {moment_text(peer.when)}: {plain(peer.why)}", style="red")
        for peer in result.lost[:MOST_ROWS]
    ]
    more = len(result.lost) - len(lines)
    lines += [Text(f"and {more:,} more", style="red")] if more else []
    return [Text(), *lines] if lines else []


def _sum(result: Result) -> PeerSummary:
    peers = result.peers
    return PeerSummary(
        peer="",
        steps=sum(peer.steps for peer in peers),
        exchanges=result.exchanges,
        bytes_sent=sum(peer.bytes_sent for peer in peers),
        bytes_received=sum(peer.bytes_received for peer in peers),
        bytes_shared=sum(peer.bytes_shared for peer in peers),
        compute_s=sum(peer.compute_s for peer in peers),
        wait_s=sum(peer.wait_s for peer in peers),
        transfer_s=sum(peer.transfer_s for peer in peers),
        hidden_s=sum(peer.hidden_s for peer in peers),
        loss=result.loss,
    )


def _cells(peer: PeerSummary, more: Set[str]) -> tuple[str, ...]:
    """The cells of a peer's row. `more`: the optional columns that the table has. A server takes no steps, and neither
    waits nor has a loss."""
    if peer.role:
        shared = [bytes_text(peer.bytes_shared)] if "bytes_shared" in more else []
        unused = 4 + ("hidden_s" in more)
        return "-", "-", bytes_text(peer.bytes_sent), bytes_text(peer.bytes_received), *shared, *["-"] * unused
    return (
        f"{peer.exchanges:,}",
        f"{peer.steps:,}",
        bytes_text(peer.bytes_sent),
        bytes_text(peer.bytes_received),
        *([bytes_text(peer.bytes_shared)] if "bytes_shared" in more else []),
        seconds_text(peer.compute_s),
        seconds_text(peer.wait_s),
        seconds_text(peer.transfer_s),
        *([seconds_text(peer.hidden_s)] if "hidden_s" in more else []),
        loss_text(peer.loss),
    )
