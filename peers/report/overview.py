"""A summary of a run of any size: its missing and stalled peers, and the totals of each peer."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence

from ..records.result import PeerSummary
from ..records.run import Run
from ..records.tally import tally_of
from ..records.totals import nothing


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Absence:
    """A peer that was lost, or that was missing from exchanges of the others. `why`: the reason that the launcher
    knows, else the last recorded one; `advice`: to the user; "": none, as for a peer that is back or
    simulated, and once the run is over."""

    peer: str
    address: str
    lost_s: tuple[float, ...]
    """The times at which it was given up, in seconds since the run started; empty if it only missed exchanges."""
    missed: int
    """Number of rounds that the others made without it; 0 where exchanges are not rounds."""
    back: bool
    """Whether it made an exchange afterwards."""
    why: str
    advice: str


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Standstill:
    """A peer that others waited for because its own work took far longer than usual."""

    peer: str
    since_s: float
    """When it was first recorded, in seconds since the run started."""
    why: str
    """The last recorded reason."""
    end: str = ""
    """"went on" or "lost"; empty: neither."""


def standstills(run: Run) -> list[Standstill]:
    """All stalls of the run, in order of time. A stall that several peers recorded is listed once."""
    under_way: dict[str, Standstill] = {}
    over: list[Standstill] = []
    for event in run.events:
        if event.event == "stalled":
            first = under_way.get(event.subject)
            since_s = event.time_s if first is None else first.since_s
            under_way[event.subject] = Standstill(peer=event.subject, since_s=since_s, why=event.why)
        elif event.event in ("goes_on", "lost") and event.subject in under_way:
            end = "lost" if event.event == "lost" else "went on"
            over.append(dataclasses.replace(under_way.pop(event.subject), end=end))
    return sorted([*over, *under_way.values()], key=lambda standstill: standstill.since_s)


def absences(run: Run) -> list[Absence]:
    """All peers that were lost or missed an exchange, in the order in which they were first lost; those that only
    missed exchanges come last."""
    lost: dict[str, list[tuple[float, str]]] = {}
    for event in run.events:
        if event.event == "lost":
            lost.setdefault(event.subject, []).append((event.time_s, event.why))
    known = {name: {why for _, why in times} for name, times in lost.items()}
    causes: dict[str, str] = {}
    for peer in run.result.lost if run.result else ():
        if peer.why not in known.get(peer.peer, {""}):
            causes[peer.peer] = peer.why  # the launcher knows the cause, the others only guess
        lost.setdefault(peer.peer, []).append((peer.when, peer.why))
    missed: dict[str, set[int]] = {}
    last_missing = {}
    for record in run.exchanges:
        for absent in record.missing:
            missed.setdefault(absent.peer, set()).add(record.version)
            last_missing[absent.peer] = absent
    alive, returns, made = _alive(run), _returns(run), _Made(run)
    goes_on = run.result is None and run.scene is None
    found = []
    for name in {**lost, **missed}:
        gone, missing, seen = sorted(lost.get(name, [])), last_missing.get(name), alive.get(name, [])
        told = (why for _, why in reversed(gone) if why)
        since = gone[-1][0] if gone else missing.since_s if missing else 0.0
        returned = [*returns.get(name, []), math.inf]
        back = any(times[-1] > since for times in (seen, returned[:-1]) if times)
        without = made.between((when, returned[bisect_right(returned, when)]) for when, _ in gone)
        found.append(
            Absence(
                peer=name,
                address=missing.address if missing else "",
                lost_s=_episodes([when for when, _ in gone], seen),
                missed=len((without | missed.get(name, set())) - made.by.get(name, set())) * (run.noun == "round"),
                back=back,
                why=causes.get(name) or next(told, missing.why if missing else ""),
                advice=missing.advice if missing and goes_on and not back else "",
            )
        )
    return sorted(found, key=lambda absence: (absence.lost_s or (math.inf,))[0])


class _Made:
    """The numbers of the run's exchanges, each with the time at which the first peer made it. `by`: peer -> the
    exchanges in which it took part itself."""

    def __init__(self, run: Run) -> None:
        first: dict[int, float] = {}
        self.by: dict[str, set[int]] = {}
        for record in run.exchanges:
            first.setdefault(record.version, record.time_s)
            if not record.caught_up:
                self.by.setdefault(record.peer, set()).add(record.version)
        self._versions = sorted(first, key=first.__getitem__)
        self._times = [first[version] for version in self._versions]

    def between(self, times: Iterable[tuple[float, float]]) -> set[int]:
        """The numbers of the exchanges made within any of these spans of time (from, to; in seconds)."""
        spans = ((bisect_right(self._times, start), bisect_right(self._times, end)) for start, end in times)
        return {version for first, last in spans for version in self._versions[first:last]}


def _alive(run: Run) -> dict[str, list[float]]:
    """Peer -> the times of its exchanges, in seconds since the run started."""
    alive: dict[str, list[float]] = {}
    for record in run.exchanges:
        alive.setdefault(record.peer, []).append(record.time_s)
    return alive


def _returns(run: Run) -> dict[str, list[float]]:
    """Peer -> the times at which it is known to take part, in seconds since the run started: those of its own
    exchanges, or, for a peer without records here, those at which others saw it join."""
    returns: dict[str, list[float]] = {}
    for record in run.exchanges:
        if not record.caught_up:
            returns.setdefault(record.peer, []).append(record.time_s)
    own = set(returns)
    for event in run.events:
        if event.event == "joined" and event.subject not in own:
            returns.setdefault(event.subject, []).append(event.time_s)
    return returns


def totals(run: Run) -> list[PeerSummary]:
    """Each peer's totals, from its own records, or from the run's result for a peer whose records are not here. All are
    0, and the loss NaN, for a peer without exchanges."""
    told = {peer.peer: peer for peer in (run.result.peers if run.result else ())}
    known = tally_of(run).peers
    own = {name: peer for name, peer in known.items() if peer.exchanges or name not in told}
    return [own.get(name) or told.get(name) or nothing(name) for name in run.peers]


def _episodes(when: Sequence[float], alive: Sequence[float]) -> tuple[float, ...]:
    """The times at which a peer was lost, each once. Several peers record one loss: of the times `when` between two of
    the peer's own exchanges (`alive`) only the first is kept."""
    kept: list[float] = []
    for time in when:
        if not kept or bisect_right(alive, time) > bisect_right(alive, kept[-1]):
            kept.append(time)
    return tuple(kept)
