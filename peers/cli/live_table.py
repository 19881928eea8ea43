"""The last known state of every peer during a run, and the table that shows it. `live_columns` has the table's columns,
`progress` prints it."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

from ...protocols.stalls.works import EVALUATION
from ..records.columns import KNOWN, ROUNDS, Columns, live, noun
from ..records.records import EventRecord, ExchangeRecord, Record
from ..records.result import PeerSummary
from ..records.run import natural
from ..records.units import (
    clock_text,
    event_text,
    loss_text,
    number_text,
    peers_text,
    plain,
    seconds_text,
)
from .peer_state import GONE, IDLE, STATES, TROUBLE, PeerState
from .phrases import SPACES, MetricPhrases

if TYPE_CHECKING:
    from rich.console import RenderableType

MOST_ROWS: Final = 16
"""With more peers than this, one row sums up all peers, and only the slowest peers and those with the latest trouble
have rows of their own."""
LATEST: Final = 3
SLOWEST: Final = 5
LATELY_S: Final = 10.0
"""The window, in seconds, over which the speed is measured to estimate the remaining time."""

MOST_NAMED: Final = 3
"""The greatest number of stalled peers that the headline names."""

_GATHERS: Final = "getting together"
_JOINED: Final = "joined a running run"
_CATCHES_UP: Final = f"{_JOINED}, catching up"


class Board:
    """The live state of a run. `update` takes the records of its peers in the order in which they arrive, whichever
    peer's; `render` gives the table."""

    def __init__(self, *, steps: int, columns: Columns = ROUNDS, watched: str = "") -> None:
        """`steps`: local steps that each peer is to take, 0: unknown; `columns`: name -> title of the conversation's
        columns; `watched`: the metric whose value ends the run, "": none does."""
        self.steps = steps
        """Local steps that each peer is to take; 0: unknown."""
        self.peers: dict[str, PeerState] = {}
        self._noun, self._own, self.watched = noun(columns), live(columns), watched
        self._before: Mapping[str, tuple[int, int]] = {}
        """Peer -> the bytes that it had sent and received before the run was resumed."""
        self._metrics = MetricPhrases()
        self._events = 0
        self._begins = _GATHERS
        """What is done before the first exchange is over, in words."""
        self._members = (0, 0, 0, 0)
        """Number of the latest exchange, of the run's members then, some of which may be unknown here, and of the peers
        that were known to be lost or to have left; and the local step at which the run ends by that exchange's record,
        0: unknown."""
        self._silent: list[PeerState] = []
        """The members that do not answer while too few do."""
        self._marks: deque[tuple[float, float]] = deque()
        """Pairs (seconds since the start, mean steps of the peers) of the last `LATELY_S` seconds. Older ones would
        give a speed that may no longer hold."""

    def joins(self) -> None:
        """Note that the run began elsewhere, and this process's peer joins it: until its first exchange the headline
        says so."""
        self._begins = "joining the run"

    def gathers(self, here: str) -> None:
        """Note how many peers have come (`here`, as text: "2 of 4 peers") of those for which the run waits before it
        begins. Does nothing once it has begun."""
        if self._begins.startswith(_GATHERS):  # else a peer tells of it late
            self._begins = f"{_GATHERS}: {here}"

    def goes_on(self, before: Iterable[PeerSummary]) -> None:
        """Note that the run is resumed. `before`: the totals of its peers so far, from which the bytes of peers that
        are not known yet begin; so this is called before the first `update`."""
        self._before = {peer.peer: (peer.bytes_sent, peer.bytes_received) for peer in before}

    def update(self, record: Record) -> None:
        """Bring the state up to date by a record of any peer, an exchange or an event."""
        if isinstance(record, EventRecord):
            self._event(record)
        else:
            self._exchange(record)

    def peer(self, name: str) -> PeerState:
        """The state of the peer with this name. A new one is created if there is none."""
        sent, received = self._before.get(name, (0, 0))
        return self.peers.setdefault(name, PeerState(name=name, bytes_sent=sent, bytes_received=received))

    def _event(self, record: EventRecord) -> None:
        peer = self.peer(record.subject)
        teller = self.peer(record.peer)
        teller.tells, teller.role = True, record.role or teller.role
        peer.role = peer.role or record.about_role
        self._events += 1
        if record.event != "checkpoint" or peer.state not in IDLE:  # which says why the peer stands still
            peer.event, peer.event_number = event_text(record, subject=False), self._events
        peer.work = record.work
        if record.event == "started":
            self._begins = f"in the first {self._noun}"
        became = STATES.get(record.event, peer.state)
        if record.event == "joined" and not record.about and self._begins == "joining the run":
            self._begins, became = _CATCHES_UP, "catching up"
        if record.event in ("asleep", "awake") and self._begins.startswith(_JOINED):
            self._begins = _JOINED if record.event == "asleep" else _CATCHES_UP
        unsaid = {"lost": GONE, "silent": (*GONE, "waiting")}.get(record.event, ())  # what it said of itself holds
        if peer.state not in unsaid:
            peer.state = became
        if record.event == "silent":
            self._silent.append(peer)

    def _exchange(self, record: ExchangeRecord) -> None:
        peer = self.peer(record.peer)
        peer.tells = True
        while self._silent:  # enough answer now: a member that still does not is recorded as lost
            silent = self._silent.pop()
            silent.state = "training" if silent.state == "silent" else silent.state
        peer.state = "done" if 0 < self.steps <= record.step else "training"
        peer.version, peer.step, peer.details = record.version, record.step, record.details
        peer.loss = peer.loss if record.caught_up else record.loss
        peer.steps_per_s = record.steps_per_s if math.isfinite(record.steps_per_s) else 0.0
        peer.bytes_sent += record.bytes_sent
        peer.bytes_received += record.bytes_received
        latest = (record.version, round(record.details.get(KNOWN, record.members)))
        if latest > self._members[:2]:
            ends_at = 0 if record.steps_left is None else record.step + record.steps_left
            self._members = (*latest, sum(self._absent().values()), ends_at)
        if record.metrics:
            self._metrics.update(record)
        for absent in record.missing:
            other = self.peer(absent.peer)
            behind = self._noun != "round" or other.version < record.version
            if other.state in ("training", "starting") and behind:
                other.state, other.event = "missing", f"missing: {plain(absent.why)}"

    @property
    def version(self) -> int:
        """The highest number of an exchange that a peer has recorded; 0: there is none."""
        return max((peer.version for peer in self.peers.values()), default=0)

    @property
    def _latest(self) -> list[PeerState]:
        """The peers known to have made the last round. Where exchanges are not rounds, all that have made one, without
        lost peers unless all of them are lost."""
        if self._noun == "round":
            return [peer for peer in self.peers.values() if peer.version >= self.version]
        told = [peer for peer in self.peers.values() if peer.version]
        return [peer for peer in told if peer.state != "lost"] or told

    @property
    def loss(self) -> float:
        """Mean over peers of the last training loss: of the peers that have finished the latest round, or, where
        exchanges are not rounds, of all present peers with an exchange. NaN when none of them has a finite one."""
        losses = [peer.loss for peer in self._latest if math.isfinite(peer.loss)]
        return fmean(losses) if losses else math.nan

    def headline(self, elapsed_s: float) -> str:
        """The state of the run in one line, such as time, exchange, loss, metrics, peers and remaining time."""
        return SPACES.join(self.phrases(elapsed_s))

    def phrases(self, elapsed_s: float, width: int = 0) -> list[str]:
        """The phrases of `headline`; and further metrics, once they have taken no more lines of so many terminal
        columns, of which 0 are not known."""
        first, rest = self._before_metrics(elapsed_s), self._after_metrics(elapsed_s)
        return self._metrics.between(first, rest, width, self.version, self._noun, self.watched)

    def _before_metrics(self, elapsed_s: float) -> list[str]:
        progress = f"{self._noun} {self.version:,}" if self.version else self._begins
        texts = [clock_text(elapsed_s), progress]
        if awaited := self._awaited():
            texts.append(awaited)
        if math.isfinite(self.loss):
            texts.append(f"loss {loss_text(self.loss)}")
        return texts

    def _after_metrics(self, elapsed_s: float) -> list[str]:
        texts = list[str]()
        for name in self._own:
            if values := [peer.details[name] for peer in self._latest if name in peer.details]:
                texts.append(f"{name} {number_text(max(values))}")
        if self.peers:
            absent = self._absent()
            unknown = max(0, self._members[1] - (len(self.peers) - self._members[2]))
            there = len(self.peers) - sum(absent.values()) + unknown
            serving = sum(bool(peer.role) and peer.state not in absent for peer in self.peers.values())
            if self.version or absent or there > serving:  # before, the workers may not have told anything yet
                texts.append(
                    ", ".join([peers_text(there, serving), *(f"{absent[state]:,} {state}" for state in absent)])
                )
        left = self._left_s(elapsed_s)
        return texts + ([f"about {seconds_text(left)} left"] if left else [])

    def _absent(self) -> dict[str, int]:
        """State -> number of the known peers that are lost or have left."""
        states = Counter(peer.state for peer in self.peers.values())
        return {state: states[state] for state in ("lost", *GONE) if states[state]}

    def _awaited(self) -> str:
        """The stalled peers, for which the others wait, as text; "" if there are none."""
        stalled = sorted(
            (peer for peer in self.peers.values() if peer.state == "stalled"),
            key=lambda peer: (peer.work == EVALUATION, natural(peer.name)),
        )
        named = ", ".join(plain(peer.name, 40) + _at_what(peer) for peer in stalled[:MOST_NAMED])
        more = len(stalled) - MOST_NAMED
        return f"waiting for {named}{f' and {more:,} more' if more > 0 else ''}" if stalled else ""

    def _left_s(self, elapsed_s: float) -> float:
        """An estimate of the remaining seconds, at the recent speed; 0 while it is too early for one."""
        active = [peer.step for peer in self.peers.values() if peer.state == "training" and peer.step]
        steps = self._members[3] or self.steps
        if not active or not steps:
            return 0.0
        step = fmean(active)
        self._marks.append((elapsed_s, step))
        while len(self._marks) > 2 and self._marks[1][0] <= elapsed_s - LATELY_S:
            self._marks.popleft()
        since_s, since_step = self._marks[0]
        taken, spent_s = step - since_step, elapsed_s - since_s
        early = taken < 0.02 * (steps - since_step) and spent_s < LATELY_S
        return spent_s * max(0.0, steps - step) / taken if taken > 0 and not early else 0.0

    def render(self, elapsed_s: float, width: int) -> RenderableType:
        """The headline and, once there are records, the table of peers, with as many columns as fit into `width`
        terminal columns. While peers wait for others or sleep, a last line tells why."""
        from rich.console import Group  # imported here, with what needs it, as in `progress`
        from rich.text import Text

        from .fitting import Phrases
        from .live_cells import INK, cells
        from .live_columns import fitted, with_own

        if not self.peers:
            return Phrases(self.phrases(elapsed_s, width))
        rows = [cells(peer, self._own, self.steps) for peer in self._rows()]
        columns = with_own(name for name in self._own if any(name in peer.details for peer in self.peers.values()))
        idle = [Text(why, style=INK["waiting"]) for why in self._idle()]
        return Group(Phrases(self.phrases(elapsed_s, width)), fitted(columns, rows, width), *idle)

    def _idle(self) -> list[str]:
        """The reason for which peers wait or sleep, whole: the table cuts it, or has no column for it. All that wait do
        so for the same peers, so the latest reason is enough."""
        idle = (peer for peer in self.peers.values() if peer.state in IDLE)
        latest = max(idle, key=lambda peer: peer.event_number, default=None)
        return [latest.event] if latest else []

    def _rows(self) -> list[PeerState]:
        peers = sorted(self.peers.values(), key=lambda peer: natural(peer.name))
        if len(peers) <= MOST_ROWS:
            return peers
        active = (peer for peer in peers if peer.steps_known and peer.state not in (*GONE, *TROUBLE, "done"))
        slow = sorted(active, key=lambda peer: peer.step)
        trouble = sorted((peer for peer in peers if peer.state in TROUBLE), key=lambda peer: -peer.event_number)
        return [self._sum(peers), *trouble[:LATEST], *slow[:SLOWEST]]

    def _sum(self, peers: list[PeerState]) -> PeerState:
        states, telling = Counter(peer.shown_state for peer in peers), [peer for peer in peers if peer.steps_known]
        return PeerState(
            tells=True,
            name=f"all {len(peers):,}",
            state=f"{states['training']:,} training",
            step=round(median([peer.step for peer in telling] or [0])),
            steps_per_s=sum(peer.steps_per_s for peer in peers if peer.state == "training"),
            version=self.version,
            loss=self.loss,
            details={
                name: median(values)
                for name in self._own
                if (values := [peer.details[name] for peer in telling if name in peer.details])
            },
            bytes_sent=sum(peer.bytes_sent for peer in peers),
            bytes_received=sum(peer.bytes_received for peer in peers),
            event=", ".join(f"{count:,} {state}" for state, count in states.most_common() if state != "training"),
        )


def _at_what(peer: PeerState) -> str:
    return ", which evaluates" if peer.work == EVALUATION else ""
