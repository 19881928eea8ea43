"""The state of every peer during a run, and the table that shows it. Output is in `progress`."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Final

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from ...protocols.local_sgd.works import EVALUATION
from ..records.records import EventRecord, Record, RoundRecord, natural
from ..records.units import as_of, bytes_text, clock_text, count_text, event_text, loss_text, plain, seconds_text
from .fitting import SPACES, Phrases, natural_width, plain_table

MOST_ROWS: Final = 16
"""With more peers than this, one row sums up the others; only the slowest and the last lost have rows of their own."""
LATEST: Final = 3
SLOWEST: Final = 5
LATELY_S: Final = 10.0
"""The window over which the remaining time is estimated."""

STATES: Final[Mapping[str, str]] = {
    "started": "starting",
    "joined": "training",
    "resumed": "training",
    "left": "left",
    "lost": "lost",
    "waiting": "waiting",
    "stalled": "stalled",
    "goes_on": "training",
    "alone": "training",
    "stopped": "stopped",
    "error": "error",
}
"""Event -> the state of its peer."""
COLUMNS: Final[Mapping[str, int]] = {
    "peer": 0,
    "state": 0,
    "steps/s": 70,
    "step": 0,
    "": 104,
    "loss": 0,
    "period": 78,
    "out": 56,
    "in": 56,
    "last event": 84,
}
"""The columns, each with the terminal width from which it is shown; the nameless one is a progress bar of the steps.
Where the numbers do not fit, the columns that need the most width go first."""
NAME_LETTERS: Final = 20
NAME_LETTERS_LEAST: Final = 10
"""Characters of a peer's name where there is no room for 20."""
EVENT_LETTERS_LEAST: Final = 12
GONE: Final = ("left", "stopped")
TROUBLE: Final = ("lost", "apart", "stalled", "waiting", "error")
MOST_NAMED: Final = 3
"""Awaited peers that the line names, at most."""
INK: Final[Mapping[str, str]] = {
    "training": "green",
    "done": "green",
    "missing": "yellow",
    "lost": "red",
    "stalled": "red",
    "waiting": "yellow",
    "error": "red",
}


@dataclasses.dataclass(kw_only=True, slots=True)
class PeerState:
    """The last known state of one peer."""

    name: str
    state: str = "starting"
    round: int = 0
    step: int = 0
    steps_per_s: float = 0.0
    loss: float = math.nan
    period: int = 0
    bytes_sent: int = 0
    """Since the run started; so are `bytes_received`."""
    bytes_received: int = 0
    event: str = ""
    work: str = ""
    """The work of a stalled peer; empty: unknown."""
    tells: bool = False
    """Whether its own records arrive here. Other peers are known only from the records of others."""
    event_number: int = 0
    """Number of its last event, counted over all peers."""


class Board:
    """The live state of a run: takes records in any order and renders the table."""

    def __init__(self, *, steps: int) -> None:
        self.steps = steps
        """Local steps that each peer is to take; 0: unknown."""
        self.peers: dict[str, PeerState] = {}
        self._accuracy: tuple[int, float] | None = None
        """Round and accuracy of the latest evaluated model."""
        self._events = 0
        self._members = (0, 0)
        """The latest round and its number of members, which may include peers unknown here."""
        self._marks: deque[tuple[float, float]] = deque()
        """Recent pairs of seconds and mean steps. Older speeds may no longer hold."""

    def update(self, record: Record) -> None:
        """Add a record."""
        if isinstance(record, EventRecord):
            self._event(record)
        else:
            self._round(record)

    def peer(self, name: str) -> PeerState:
        return self.peers.setdefault(name, PeerState(name=name))

    def _event(self, record: EventRecord) -> None:
        peer = self.peer(record.subject)
        self.peer(record.peer).tells = True
        self._events += 1
        peer.event, peer.event_number = event_text(record, subject=False), self._events
        peer.work = record.work
        if not (record.event == "lost" and peer.state in GONE):  # a peer that has left is not lost
            peer.state = STATES.get(record.event, peer.state)

    def _round(self, record: RoundRecord) -> None:
        peer = self.peer(record.peer)
        peer.tells = True
        peer.state = "done" if 0 < self.steps <= record.step else "training"
        peer.round, peer.step, peer.period = record.round, record.step, record.period
        peer.loss = peer.loss if record.caught_up else record.loss
        peer.steps_per_s = record.steps_per_s if math.isfinite(record.steps_per_s) else 0.0
        peer.bytes_sent += record.bytes_sent
        peer.bytes_received += record.bytes_received
        self._members = max(self._members, (record.round, record.members))
        if record.accuracy is not None:
            self._accuracy = record.round, record.accuracy
        for absent in record.missing:
            other = self.peer(absent.peer)
            if other.state in ("training", "starting") and other.round < record.round:
                other.state, other.event = "missing", f"missing: {plain(absent.why)}"

    @property
    def round(self) -> int:
        return max((peer.round for peer in self.peers.values()), default=0)

    @property
    def _latest(self) -> list[PeerState]:
        """The peers known to have made the last round."""
        last = self.round
        return [peer for peer in self.peers.values() if peer.round == last]

    @property
    def loss(self) -> float:
        """Mean over the peers that made the last round."""
        losses = [peer.loss for peer in self._latest if math.isfinite(peer.loss)]
        return fmean(losses) if losses else math.nan

    def headline(self, elapsed_s: float) -> str:
        """The run in one line."""
        return SPACES.join(self._phrases(elapsed_s))

    def _phrases(self, elapsed_s: float) -> list[str]:
        parts = [clock_text(elapsed_s), f"round {self.round:,}" if self.round else "getting together"]
        if awaited := self._awaited():
            parts.append(awaited)
        if math.isfinite(self.loss):
            parts.append(f"loss {loss_text(self.loss)}")
        if self._accuracy is not None:
            parts.append(f"accuracy {as_of(*self._accuracy, self.round)}")
        if period := max((peer.period for peer in self._latest), default=0):
            parts.append(f"period {period:,}")
        states = Counter(peer.state for peer in self.peers.values())
        there = len(self.peers) - states["lost"] - sum(states[gone] for gone in GONE)
        there += max(0, self._members[1] - len(self.peers))
        away = [f"{states[state]:,} {state}" for state in ("lost", *GONE) if states[state]]
        if self.peers:
            parts.append(", ".join([count_text(there, "peer"), *away]))
        left = self._left_s(elapsed_s)
        return parts + ([f"about {seconds_text(left)} left"] if left else [])

    def _awaited(self) -> str:
        """The peers that the round waits for, as text."""
        stalled = sorted(
            (peer for peer in self.peers.values() if peer.state == "stalled"),
            key=lambda peer: (peer.work == EVALUATION, natural(peer.name)),
        )
        named = ", ".join(plain(peer.name, 40) + _at_what(peer) for peer in stalled[:MOST_NAMED])
        more = len(stalled) - MOST_NAMED
        return f"waiting for {named}{f' and {more:,} more' if more > 0 else ''}" if stalled else ""

    def _left_s(self, elapsed_s: float) -> float:
        """The remaining seconds at the recent speed; 0 while it is too early for an estimate."""
        active = [peer.step for peer in self.peers.values() if peer.state == "training" and peer.step]
        if not active or not self.steps:
            return 0.0
        step = fmean(active)
        self._marks.append((elapsed_s, step))
        while len(self._marks) > 2 and self._marks[1][0] <= elapsed_s - LATELY_S:
            self._marks.popleft()
        since_s, since_step = self._marks[0]
        taken, spent_s = step - since_step, elapsed_s - since_s
        early = taken < 0.02 * self.steps and spent_s < LATELY_S
        return spent_s * (self.steps - step) / taken if taken > 0 and not early else 0.0

    def render(self, elapsed_s: float, width: int) -> RenderableType:
        """The headline and, once there are records, a table that fits into `width` columns; narrow ones have fewer
        columns."""
        if not self.peers:
            return Phrases(self._phrases(elapsed_s))
        shown = [name for name, at_least in COLUMNS.items() if width >= at_least]
        rows, letters = [self._cells(peer) for peer in self._rows()], NAME_LETTERS
        while _room_needed(shown, rows, letters) > width:
            if letters > NAME_LETTERS_LEAST:
                letters = NAME_LETTERS_LEAST
            elif COLUMNS[least := max(shown, key=COLUMNS.__getitem__)]:
                shown.remove(least)
            else:
                break
        return Group(Phrases(self._phrases(elapsed_s)), _table(shown, rows, letters))

    def _rows(self) -> list[PeerState]:
        peers = sorted(self.peers.values(), key=lambda peer: natural(peer.name))
        if len(peers) <= MOST_ROWS:
            return peers
        active = (peer for peer in peers if peer.tells and peer.state not in (*GONE, *TROUBLE, "done"))
        slow = sorted(active, key=lambda peer: peer.step)
        trouble = sorted((peer for peer in peers if peer.state in TROUBLE), key=lambda peer: -peer.event_number)
        return [self._sum(peers), *trouble[:LATEST], *slow[:SLOWEST]]

    def _sum(self, peers: list[PeerState]) -> PeerState:
        states, telling = Counter(peer.state for peer in peers), [peer for peer in peers if peer.tells]
        return PeerState(
            tells=True,
            name=f"all {len(peers):,}",
            state=f"{states['training']:,} training",
            step=round(median(peer.step for peer in telling)),
            steps_per_s=sum(peer.steps_per_s for peer in peers if peer.state == "training"),
            round=self.round,
            loss=self.loss,
            period=round(median(peer.period for peer in telling)),
            bytes_sent=sum(peer.bytes_sent for peer in peers),
            bytes_received=sum(peer.bytes_received for peer in peers),
            event=", ".join(f"{count:,} {state}" for state, count in states.most_common() if state != "training"),
        )

    def _cells(self, peer: PeerState) -> dict[str, RenderableType]:
        told: dict[str, RenderableType] = {
            "peer": Text(plain(peer.name, 40)),
            "state": Text(peer.state, style=INK.get(peer.state, "")),
            "last event": Text(peer.event, style="dim"),
        }
        if not peer.tells:
            return dict.fromkeys(COLUMNS, "-") | {"": ""} | told
        return told | {
            "steps/s": f"{peer.steps_per_s:,.1f}",
            "step": f"{peer.step:,}" + (f" of {self.steps:,}" if self.steps else ""),
            "": ProgressBar(total=max(self.steps, 1), completed=peer.step, width=12),
            "loss": loss_text(peer.loss) if peer.round else "-",
            "period": f"{peer.period:,}" if peer.period else "-",
            "out": bytes_text(peer.bytes_sent),
            "in": bytes_text(peer.bytes_received),
        }


def _at_what(peer: PeerState) -> str:
    return ", which evaluates" if peer.work == EVALUATION else ""


def _room_needed(shown: Sequence[str], rows: list[dict[str, RenderableType]], letters: int) -> int:
    """The terminal columns of a table in which nothing is cut but names and events."""
    whole = [name for name in shown if name != "last event"]
    return natural_width(_table(whole, rows, letters)) + (EVENT_LETTERS_LEAST if len(whole) < len(shown) else 0)


def _table(shown: Sequence[str], rows: list[dict[str, RenderableType]], letters: int) -> Table:
    table = plain_table(*(_column(name, letters) for name in shown), expand="last event" in shown)
    for cells in rows:
        table.add_row(*(cells[name] for name in shown))
    return table


def _column(name: str, letters: int) -> Column:
    if name == "":
        return Column("", width=12)
    if name == "last event":
        return Column(name, no_wrap=True, ratio=1)
    left = name in ("peer", "state")
    most = letters if name == "peer" else None
    return Column(name, no_wrap=True, justify="left" if left else "right", max_width=most)
