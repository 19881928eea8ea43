"""The curves of a run of any size: loss and columns over its exchanges, and each metric over its evaluations."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from statistics import fmean, median
from typing import Final

from ..records.records import ExchangeRecord
from ..records.run import Run, natural

STRETCHES: Final = 300
"""Most points on the curve of a run whose peers are not in step."""


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """A point of a curve, over the records of one round, of one stretch of time, or over a single record."""

    time_s: float
    first: int
    """The lowest number of an exchange among these records."""
    version: int
    """The highest one."""
    peers: tuple[str, ...]
    """The peers whose records these are, in natural order."""
    bytes_sent: int
    """Bytes sent by all peers since the run started."""
    value: float
    """Mean of the metric, or of the finite training losses; NaN when there are none. `low` and `high` are the means of
    the peers with the lowest and the highest ones."""
    low: float
    high: float
    details: Mapping[str, float]
    """By name, medians over the peers that told them."""
    members: int


def curve(run: Run) -> list[Point]:
    """The points of the curves of loss, columns and members, in order of time: one for each round. Where exchanges are
    not rounds, or rounds of different peers overlap in time, one for each of at most `STRETCHES` stretches of equal
    time."""
    made = [record for record in run.exchanges if not record.caught_up] or list(run.exchanges)
    groups = _numbered(run, made) if run.noun == "round" else []
    return _points(run, groups or _in_stretches(run, made), lambda record: record.loss, math.isfinite)


def measured(run: Run, name: str) -> list[Point]:
    """The points of the curve of the metric `name`, in order of time. Where exchanges are rounds, or each peer
    evaluates a model of its own, the evaluations after the exchanges of one number are a point, or, if those of
    different numbers overlap in time, the ones of each of at most `STRETCHES` stretches of equal time. Elsewhere each
    evaluation is a point. A script's evaluation is at the exchange that gave its model, although the record of a later
    one tells it."""
    told = _as_measured(run, [record for record in run.exchanges if name in record.metrics])
    if run.noun == "round" or any(record.own_model for record in told):
        groups = _numbered(run, told) or _in_stretches(run, told)
    else:
        groups = [[record] for record in told]
    return _points(run, groups, lambda record: record.metrics[name], lambda value: True)


def _as_measured(run: Run, told: Sequence[ExchangeRecord]) -> Sequence[ExchangeRecord]:
    """The records `told`, each with metrics. In place of one whose metrics are of the model of an earlier exchange is
    the peer's record of that exchange, with these metrics. In order of time."""
    if all(record.metrics_at is None for record in told):
        return told
    made = {(record.peer, record.version): record for record in run.exchanges}
    found = []
    for record in told:
        own = made.get((record.peer, record.measured_at))
        if own is None:  # the initial model, or a round that the peer has no record of
            at_s = record.time_s if record.measured_at else 0.0
            own = dataclasses.replace(record, version=record.measured_at, time_s=at_s)
        found.append(dataclasses.replace(own, metrics=record.metrics))
    return sorted(found, key=lambda record: record.time_s)


def differ(points: Iterable[Point]) -> bool:
    """Whether the peers' values differ at one of the points, which is then a mean."""
    return any(_is_mean(point) for point in points)


def averaged(points: Iterable[Point]) -> list[str]:
    """The peers of whose differing values points are means, in natural order; empty: no point is one."""
    return sorted({peer for point in points if _is_mean(point) for peer in point.peers}, key=natural)


def _is_mean(point: Point) -> bool:
    return point.high - point.low > 1e-6 * abs(point.high)


def _numbered(run: Run, records: Sequence[ExchangeRecord]) -> list[list[ExchangeRecord]]:
    """The records by the number of their exchange; none where rounds do not end in the order of their numbers, or
    exchanges that are not rounds overlap with those of the next number."""
    groups = _grouped(records, [record.version for record in records])
    begun = -1 if run.noun == "round" else 0
    in_order = all(one[-1].time_s <= other[begun].time_s for one, other in pairwise(groups))
    return groups if in_order else []


def _in_stretches(run: Run, records: Sequence[ExchangeRecord]) -> list[list[ExchangeRecord]]:
    """The records by stretches of equal time. Where exchanges are not rounds, there are so few that most peers have a
    record in each stretch: the mean would jump between stretches of different peers."""
    each = Counter(record.peer for record in records)
    most = STRETCHES if run.noun == "round" else min(STRETCHES, round(median(each.values() or [1])))
    width = run.exchanges[-1].time_s / most if records else 0.0
    return _grouped(records, [math.ceil(record.time_s / (width or 1.0)) for record in records])


def _grouped(records: Iterable[ExchangeRecord], keys: Iterable[int]) -> list[list[ExchangeRecord]]:
    groups: dict[int, list[ExchangeRecord]] = {}
    for key, record in zip(keys, records, strict=True):
        groups.setdefault(key, []).append(record)
    return [groups[key] for key in sorted(groups)]


def _points(
    run: Run,
    groups: Sequence[Sequence[ExchangeRecord]],
    value: Callable[[ExchangeRecord], float],
    counts: Callable[[float], bool],
) -> list[Point]:
    times = [record.time_s for record in run.exchanges]
    sent = list(accumulate((record.bytes_sent for record in run.exchanges), initial=0))
    found = []
    for group in groups:
        told = [(record.peer, value(record)) for record in group if counts(value(record))]
        found.append(_point(group, told, sent[bisect_right(times, group[-1].time_s)]))
    return found


def _point(group: Sequence[ExchangeRecord], told: Sequence[tuple[str, float]], bytes_sent: int) -> Point:
    each = _by_name({peer: value} for peer, value in told)
    means = [fmean(of_peer) for of_peer in each.values()]
    versions = [record.version for record in group]
    return Point(
        time_s=group[-1].time_s,
        first=min(versions),
        version=max(versions),
        peers=tuple(sorted({record.peer for record in group}, key=natural)),
        bytes_sent=bytes_sent,
        value=_mean([value for _, value in told]) if told else math.nan,
        low=min(means, default=math.nan),
        high=max(means, default=math.nan),
        details={name: median(values) for name, values in _by_name(record.details for record in group).items()},
        members=max(record.members for record in group),
    )


def _mean(values: Sequence[float]) -> float:
    """The mean. Of equal values it is the value itself, so that an int, which is shown without decimals, stays one."""
    return values[0] if values.count(values[0]) == len(values) else fmean(values)


def _by_name(rows: Iterable[Mapping[str, float]]) -> dict[str, list[float]]:
    values: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            values.setdefault(name, []).append(value)
    return values
