"""Finds peers that should have finished a simulated run and did not, from the events of who was alive when."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence

from ...protocols.local_sgd.rounds import Committed, Computed, Installed
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Decided
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Began, Entry, Fell, Gone


def unfinished(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """The violations of the promise `who_lives_finishes` (`checkers`)."""
    always = scenario.brief and _more_than_half_live(scenario, entries)
    # A peer under buggify may declare all others dead, for as long as buggify lasts.
    since_s = scenario.buggify_until_s if always else _healed_s(scenario, entries)
    if since_s is None:
        return
    gone = [(time_s, life, event) for time_s, life, event in entries if isinstance(event, Gone)]
    spoiled = {
        life for *_, event in entries if isinstance(event, Fell) and event.kind == Kind.SPOIL for life in event.who
    }
    over_s = _over_s(entries)
    members = {life for _, life, event in entries if isinstance(event, Installed)} - spoiled
    for time_s, life, event in gone:
        ended = event.finished or event.crashed
        if not ended and life in members and time_s >= since_s and (over_s is None or time_s < over_s):
            yield f"{life} gave up: {event.error or 'without a word'}"
    if over_s is None:
        yield "nobody finished"


def _over_s(entries: Sequence[Entry]) -> float | None:
    """When more than half of the newest view's members had ended the run; infinite if fewer did; None: none has."""
    members: tuple[str, ...] = ()
    generation, over_s, finished = 0, None, set[str]()
    for time_s, life, event in entries:
        if isinstance(event, Installed) and event.generation > generation:
            generation, members = event.generation, event.members
        elif isinstance(event, Gone) and event.finished:
            over_s = math.inf
            finished.add(f"peer-{peer_of(life)}")
            if 2 * len(finished.intersection(members)) > len(members):
                return time_s
    return over_s


_SETTLE = 10
"""Patiences after the last fault in which peers that still try must succeed. Without a quorum peers give up after 8,
and a peer silent for so long is declared dead by all."""


def _more_than_half_live(scenario: Scenario, entries: Sequence[Entry]) -> bool:
    """Whether more than half of the newest view's members are alive until the first has finished, apart from gaps
    shorter than a patience."""
    living, too_few_s = _Living(scenario.settings.patience_s), math.inf
    for time_s, life, event in entries:
        if isinstance(event, Gone) and event.finished:
            return True
        living.saw(time_s, life, event)
        if isinstance(event, Began | Decided | Installed | Gone):
            too_few_s = math.inf if living.enough() else min(too_few_s, time_s)
        if time_s - too_few_s > scenario.settings.patience_s:
            return False
    return too_few_s == math.inf


_MEMBERS = (State.MEMBER, State.LEADING)


class _Living:
    """Keeps which members of the newest view are alive. A process restarted without a record, a newcomer that no member
    has heard of, a peer whose numbers were spoiled and one that has decided a view without itself do not count as
    alive. A peer that was let in and has taken part in no round yet is not missed."""

    def __init__(self, patience_s: float) -> None:
        self._settle_s = _SETTLE * patience_s
        self._began: dict[str, float] = {}
        self._faithful: set[str] = set()
        """Lives that are the first of their peer, or have the votes of the life before."""
        self._running: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        self._newest, self._since_s = Installed(0, (), 0, ()), 0.0
        self._overruled: set[str] = set()
        self._counts: set[str] = set()
        """Peers that gathered before the first round, or have learned or held a result since; the loss of other peers
        does not count."""
        self._begun = False
        self._has: Counter[str] = Counter()
        """The last round whose result each life holds."""

    def saw(self, time_s: float, life: str, event: object) -> None:
        if isinstance(event, Began):
            first = peer_of(life) not in map(peer_of, self._began)
            self._began[life], self._running[peer_of(life)] = time_s, life
            self._faithful |= {life} if first or event.remembers else set()
        elif _went(life, event):
            self._overruled.add(life)
        elif isinstance(event, Installed):
            self._overruled.discard(life)
            self._seen[life] = event.generation
            self._counts |= set() if self._begun else {*event.members}
            if event.generation > self._newest.generation:
                self._newest, self._since_s = event, time_s
        elif isinstance(event, Moved) and event.before is State.LEARNER and event.now in _MEMBERS:
            self._counts.add(f"peer-{peer_of(life)}")
        elif isinstance(event, Computed):
            self._has[life] = max(self._has[life], event.key[1])
        elif isinstance(event, Committed):
            self._begun = True
            self._has[life] = max(self._has[life], event.round)
            self._counts.add(f"peer-{peer_of(life)}")
        elif isinstance(event, Gone) and event.crashed:
            self._running.pop(peer_of(life), None)
        elif isinstance(event, Fell) and event.kind == Kind.SPOIL:
            self._running = {peer: life for peer, life in self._running.items() if life not in event.who}

    def enough(self) -> bool:
        members = [peer for peer in self._newest.members if peer in self._counts]
        living = [peer for peer in members if self._lives(peer)]
        has_it = any(self._has[self._running[peer.removeprefix("peer-")]] >= self._newest.round for peer in living)
        return not members or (has_it and 2 * len(living) > len(members))

    def _lives(self, peer: str) -> bool:
        life, generation = self._running.get(peer.removeprefix("peer-"), ""), self._newest.generation
        faithful = life in self._faithful or self._began.get(life, math.inf) < self._since_s - self._settle_s
        hears = life in self._seen or generation in map(self._seen.get, self._running.values())
        return life not in {"", *self._overruled} and hears and (faithful or self._seen.get(life) == generation)


def _healed_s(scenario: Scenario, entries: Sequence[Entry]) -> float | None:
    """When all faults are long over and more than half of the newest view's members are still alive; None: never."""
    if scenario.faults_until_s is None or scenario.settings.quorum is not None:
        return None
    healed_s = scenario.faults_until_s + _SETTLE * scenario.settings.patience_s
    views: dict[str, Installed] = {}
    for time_s, life, event in entries:
        if time_s >= healed_s:
            break
        if isinstance(event, Installed):
            views[life] = event
        elif _went(life, event):
            views.pop(life, None)
        elif isinstance(event, Gone):
            if event.finished:
                return None  # the run is over, or nearly so
            views.pop(life, None)
    newest = max(views.values(), key=lambda view: view.generation, default=None)
    there = sum(newest is not None and view.generation == newest.generation for view in views.values())
    return healed_s if newest is not None and 2 * there > len(newest.members) else None


def _went(life: str, event: object) -> bool:
    """Whether that life has decided a view without itself, continuing the decree of another; others may not know of
    it."""
    return isinstance(event, Decided) and f"peer-{peer_of(life)}" not in event.members


def peer_of(life: str) -> str:
    """The number of the peer whose life that is."""
    return life.split(".")[0]
