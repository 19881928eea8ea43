"""Partitions of the data in an algorithm of map and reduce: their names, and the worker that maps each.

A push counts for its partition and not for the worker that has made it. So a partition has a clock in each range, as a
worker has in other algorithms, and a partition that two workers have mapped counts once.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..members.view import View
from ..transport import PeerId
from .tenure import workers_of

PARTITIONS_MAX = 2048
"""The most partitions of a run, so that one message can list them all with their clocks."""


def names_of(count: int) -> tuple[str, ...]:
    """The names of `count` partitions ("partition 0" and so on), by which ranges keep their clocks."""
    return tuple(f"partition {number}" for number in range(count))


def mappers(view: View, count: int) -> tuple[PeerId, ...]:
    """By partition, the worker of `view` that maps it; empty without workers. All members of the view compute the same.
    A worker maps the partition of its own number (`Attributes.data_shard`), which it has in memory; of workers with one
    number the first. A partition without such a worker goes to the worker that has fewest so far."""
    workers = workers_of(view)
    owners: dict[int, PeerId] = {}
    for member in view.members:
        if member.id in workers:
            owners.setdefault(member.attributes.data_shard, member.id)
    has = {worker: sum(owners.get(number) == worker for number in range(count)) for worker in workers}
    chosen: list[PeerId] = []
    for number in range(count if workers else 0):
        worker = owners.get(number)
        if worker is None:
            worker = min(workers, key=lambda one: has[one])
            has[worker] += 1
        chosen.append(worker)
    return tuple(chosen)


def named_mappers(names: Sequence[str], view: View) -> dict[str, PeerId]:
    """By the name of a partition, in the order of `names`, the worker of `view` that maps it; empty without workers."""
    return dict(zip(names, mappers(view, len(names)), strict=bool(workers_of(view))))
