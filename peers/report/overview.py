"""A summary of a run of any size: its learning curve, the missing peers, and totals per peer."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from statistics import fmean, median
from typing import Final

from ..records.records import PeerSummary, RoundRecord, Run
from ..records.tally import Tally, nothing

STRETCHES: Final = 300
"""Points on the curve of a run whose peers are not in step."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """The whole run at one moment, over the peers that then committed a round."""

    time_s: float
    round: int
    bytes_sent: int
    """Bytes sent by all peers since the run started."""
    loss: float
    """Mean of the finite losses; NaN when there are none. `low` and `high` are their extremes."""
    low: float
    high: float
    accuracy: float | None
    period: float
    """Median, in local steps."""
    members: int


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Absence:
    """A peer that the others had to train without."""

    peer: str
    address: str
    lost_s: tuple[float, ...]
    """Each time it was given up, in seconds since the run started; empty for a peer that only missed rounds."""
    missed: int
    """Rounds of the others between its losses and its returns."""
    back: bool
    """Whether it committed a round afterwards."""
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
    """All stalls, in order of time, each once however many peers recorded it."""
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


def curve(run: Run) -> list[Point]:
    """The curve of the run: a point for each round, in order of time; a point for each stretch of time if peers are not
    in step."""
    averaged = [record for record in run.rounds if not record.caught_up] or list(run.rounds)
    times = [record.time_s for record in run.rounds]
    sent = list(accumulate((record.bytes_sent for record in run.rounds), initial=0))
    by_round = _grouped(averaged, [record.round for record in averaged])
    ends = [group[-1].time_s for group in by_round]
    if ends != sorted(ends):
        width = times[-1] / STRETCHES or 1.0
        by_round = _grouped(averaged, [math.ceil(record.time_s / width) for record in averaged])
    return [_point(group, sent[bisect_right(times, group[-1].time_s)]) for group in by_round]


def absences(run: Run) -> list[Absence]:
    """All peers that were lost or missed a round, in order of the first loss."""
    lost: dict[str, list[tuple[float, str]]] = {}
    for event in run.events:
        if event.event == "lost":
            lost.setdefault(event.subject, []).append((event.time_s, event.why))
    known = {name: {why for _, why in losses} for name, losses in lost.items()}
    causes: dict[str, str] = {}
    for peer in run.result.lost if run.result else ():
        if peer.why not in known.get(peer.peer, {""}):
            causes[peer.peer] = peer.why  # the launcher knows the cause, the others only guess
        lost.setdefault(peer.peer, []).append((peer.when, peer.why))
    missed: dict[str, set[int]] = {}
    last_missing = {}
    for record in run.rounds:
        for absent in record.missing:
            missed.setdefault(absent.peer, set()).add(record.round)
            last_missing[absent.peer] = absent
    alive, returns, made = _alive(run), _returns(run), _Made(run)
    found = []
    for name in {**lost, **missed}:
        losses, missing, seen = sorted(lost.get(name, [])), last_missing.get(name), alive.get(name, [])
        told = (why for _, why in reversed(losses) if why)
        since = losses[-1][0] if losses else missing.since_s if missing else 0.0
        returned = [*returns.get(name, []), math.inf]
        without = made.between((when, returned[bisect_right(returned, when)]) for when, _ in losses)
        found.append(
            Absence(
                peer=name,
                address=missing.address if missing else "",
                lost_s=_episodes([when for when, _ in losses], seen),
                missed=len((without | missed.get(name, set())) - made.by.get(name, set())),
                back=any(times[-1] > since for times in (seen, returned[:-1]) if times),
                why=causes.get(name) or next(told, missing.why if missing else ""),
                advice=missing.advice if missing else "",
            )
        )
    return sorted(found, key=lambda absence: (absence.lost_s or (math.inf,))[0])


class _Made:
    """Rounds with the time of their first commit. `by`: the rounds that each peer averaged itself."""

    def __init__(self, run: Run) -> None:
        first: dict[int, float] = {}
        self.by: dict[str, set[int]] = {}
        for record in run.rounds:
            first.setdefault(record.round, record.time_s)
            if not record.caught_up:
                self.by.setdefault(record.peer, set()).add(record.round)
        self._rounds = sorted(first, key=first.__getitem__)
        self._times = [first[number] for number in self._rounds]

    def between(self, times: Iterable[tuple[float, float]]) -> set[int]:
        """The rounds committed within any of these spans of time."""
        spans = ((bisect_right(self._times, start), bisect_right(self._times, end)) for start, end in times)
        return {number for first, last in spans for number in self._rounds[first:last]}


def _alive(run: Run) -> dict[str, list[float]]:
    """The times of each peer's round records."""
    alive: dict[str, list[float]] = {}
    for record in run.rounds:
        alive.setdefault(record.peer, []).append(record.time_s)
    return alive


def _returns(run: Run) -> dict[str, list[float]]:
    """The times at which each peer began to take part: by its own records, or else as others saw it join."""
    returns: dict[str, list[float]] = {}
    for record in run.rounds:
        if not record.caught_up:
            returns.setdefault(record.peer, []).append(record.time_s)
    own = set(returns)
    for event in run.events:
        if event.event == "joined" and event.subject not in own:
            returns.setdefault(event.subject, []).append(event.time_s)
    return returns


def totals(run: Run) -> list[PeerSummary]:
    """Each peer's totals, from its own records, or from the result where these are not here."""
    told = {peer.peer: peer for peer in (run.result.peers if run.result else ())}
    own = Tally(run.rounds).peers
    return [own.get(name) or told.get(name) or nothing(name) for name in run.peers]


def _grouped(records: Iterable[RoundRecord], keys: Iterable[int]) -> list[list[RoundRecord]]:
    groups: dict[int, list[RoundRecord]] = {}
    for key, record in zip(keys, records, strict=True):
        groups.setdefault(key, []).append(record)
    return [groups[key] for key in sorted(groups)]


def _point(group: Sequence[RoundRecord], bytes_sent: int) -> Point:
    losses = [record.loss for record in group if math.isfinite(record.loss)]
    accuracies = [record.accuracy for record in group if record.accuracy is not None]
    return Point(
        time_s=group[-1].time_s,
        round=max(record.round for record in group),
        bytes_sent=bytes_sent,
        loss=fmean(losses) if losses else math.nan,
        low=min(losses, default=math.nan),
        high=max(losses, default=math.nan),
        accuracy=fmean(accuracies) if accuracies else None,
        period=median(record.period for record in group),
        members=max(record.members for record in group),
    )


def _episodes(when: Sequence[float], alive: Sequence[float]) -> tuple[float, ...]:
    """Separate losses of a peer. Many peers record the same loss: times without a sign of life between them are one
    loss."""
    kept: list[float] = []
    for time in when:
        if not kept or bisect_right(alive, time) > bisect_right(alive, kept[-1]):
            kept.append(time)
    return tuple(kept)
