"""Finding peers that should have finished a simulated run and did not, from the events that tell which peers were alive
at which time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from ...protocols.local_sgd.rounds import Committed, Computed, Installed
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Decided
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Began, Entry, Fell, Gone, id_of, peer_of


def unfinished(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each way in which the promise `living_peers_finish` (`local_sgd`) is broken: nobody finished, or a
    member gave up, although enough peers could continue together."""
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
    """The time at which more than half of the newest view's members had finished; infinite: fewer have; None: no peer
    has. A member that crashed after the last round had finished too."""
    members: tuple[str, ...] = ()
    generation, over_s, finished = 0, None, set[str]()
    committed, crashed_at = Counter[str](), Counter[str]()
    for time_s, life, event in entries:
        peer = id_of(life)
        if isinstance(event, Installed) and event.generation > generation:
            generation, members = event.generation, event.members
        elif isinstance(event, Committed):
            committed[peer] = event.round
        elif isinstance(event, Gone) and event.crashed:
            crashed_at[peer] = max(crashed_at[peer], committed[peer])
        elif isinstance(event, Gone) and event.finished:
            over_s = math.inf
            finished |= {peer, *(other for other, round in crashed_at.items() if round >= committed[peer] > 0)}
            if 2 * len(finished.intersection(members)) > len(members):
                return time_s
    return over_s


_SETTLE = 10
"""The time after the last fault, in patiences, by which peers that still run must be able to continue. Without a quorum
peers give up after 8 patiences, and a peer that is silent for so long is declared dead by all others."""


def _more_than_half_live(scenario: Scenario, entries: Sequence[Entry]) -> bool:
    """Whether more than half of the newest view's members are alive at all times until the first peer has finished,
    apart from times shorter than a patience."""
    living, too_few_s = _Living(scenario), math.inf
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
    """Tells whether more than half of the newest view's members are alive and reach each other.

    Not alive are a process that was restarted without its votes, a newcomer that no member has heard of, a peer whose
    numbers were spoiled, and a peer that has decided a view without itself. A peer that was admitted but has held no
    result yet is not counted as a member.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario, self._settle_s = scenario, _SETTLE * scenario.settings.patience_s
        self._began: dict[str, float] = {}
        self._faithful: set[str] = set()
        """The processes (lives) that are the first of their peer, or have the votes of the process before."""
        self._running: dict[str, str] = {}
        self._seen: dict[str, int] = {}
        self._newest, self._since_s = Installed(0, (), 0, ()), 0.0
        self._overruled: set[str] = set()
        self._counts: set[str] = set()
        """The peers that count as members: those that gathered before the first round, and those that have held a
        result since."""
        self._begun = False
        self._has: Counter[str] = Counter()
        """Life -> the last round whose result it holds."""

    def saw(self, time_s: float, life: str, event: object) -> None:
        """Add an event of the log."""
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
            self._counts.add(id_of(life))
        elif isinstance(event, Computed):
            self._has[life] = max(self._has[life], event.attempt[1])
        elif isinstance(event, Committed):
            self._begun = True
            self._has[life] = max(self._has[life], event.round)
            self._counts.add(id_of(life))
        elif isinstance(event, Gone) and event.crashed:
            self._running.pop(peer_of(life), None)
        elif isinstance(event, Fell) and event.kind == Kind.SPOIL:
            self._running = {peer: life for peer, life in self._running.items() if life not in event.who}

    def enough(self) -> bool:
        """Whether more than half of the members are alive now, and one of them holds the result to continue from."""
        members = [peer for peer in self._newest.members if peer in self._counts]
        everybody = {*filter(self._lives, self._newest.members)}
        living = [peer for peer in members if peer in everybody]
        has_it = any(self._has[self._running[peer.removeprefix("peer-")]] >= self._newest.round for peer in living)
        there = len(living) if _can_meet(self._scenario, everybody) else min(1, len(living))
        return not members or (has_it and 2 * there > len(members))

    def _lives(self, peer: str) -> bool:
        life, generation = self._running.get(peer.removeprefix("peer-"), ""), self._newest.generation
        faithful = life in self._faithful or self._began.get(life, math.inf) < self._since_s - self._settle_s
        hears = life in self._seen or generation in map(self._seen.get, self._running.values())
        return life not in {"", *self._overruled} and hears and (faithful or self._seen.get(life) == generation)


def _healed_s(scenario: Scenario, entries: Sequence[Entry]) -> float | None:
    """The time at which all faults are long over, if more than half of the newest view's members are alive then; None:
    they are not, or faults do not end."""
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
    there = [life for life, view in views.items() if newest is not None and view.generation == newest.generation]
    enough = newest is not None and 2 * len(there) > len(newest.members)
    return healed_s if enough and _can_meet(scenario, there) else None


def _can_meet(scenario: Scenario, members: Collection[str]) -> bool:
    """Whether these living members reach each other. Without a member that can be dialled, those that cannot do not:
    there is no relay between them (docs/relay.md), so each of them is alone, and rightly gives up. `members`: peers or
    their lives."""
    numbers = [int(peer_of(member.removeprefix("peer-"))) for member in members]
    return len(numbers) < 2 or any(scenario.group_of(number).dialable for number in numbers)


def _went(life: str, event: object) -> bool:
    """Whether this event is that `life` has decided a view without itself, when it completed another peer's proposal.
    Other peers may not know of that view."""
    return isinstance(event, Decided) and id_of(life) not in event.members
