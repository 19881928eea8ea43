"""Placement: which servers hold which range of the model's vector and of its tables.

The vector is cut into ranges, and the rows of each table into blocks, which are ranges too; they never change during a
run. Each range has a place on a ring of 2^64 points, and each server has `POINTS` places on it (virtual nodes):
consistent hashing, Karger et al., STOC 1997. The copies of a range are on the first k different servers clockwise from
its place; the first is the head of the range's chain, the last its tail. A server that cannot reach one before it in
the chain is left out. All places come from hashes of ids and of numbers, so the same view gives the same placement on
all peers. When a server joins, a chain changes only where the new server enters it; when one leaves, only where it was.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b

from ...aggregation.rows import Table
from ...aggregation.vector import Part, parts
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX

POINTS = 64
"""Places of a server on the ring: the shares of two servers differ by about a tenth then."""
RANGE_ELEMENTS = 1 << 14
"""The most elements of a range, in a model of usual size. Each range costs time in each push and pull. A range is sent
whole, and nothing else passes meanwhile: ranges of 1 << 16 made four workers on 1 Mbit/s lose their server."""
BLOCKS_MIN, BLOCKS_MAX = 32, 1024
"""The fewest blocks of one table, and the most of all tables together."""
RANGES_MAX = 4096
"""The most ranges, so that one message can list all."""
FEWEST_MAX = RANGES_MAX // 4
"""The highest number of ranges that a run may ask for at least."""


def ranges_of(size: int, parameters: int, fewest: int) -> tuple[Part, ...]:
    """The ranges into which a vector of `size` elements is cut. Its first `parameters` elements are parameters, and the
    others averaged buffers; no range holds both. Each kind is cut into ranges of about 16384 elements
    (`RANGE_ELEMENTS`) at most, but into at least `fewest` ranges (or as many as it has elements). There are at most
    2048 ranges of parameters (half of `RANGES_MAX`) and 1024 of buffers, so those of a large model are larger."""
    cut = [_cut(Part(0, parameters), fewest, RANGES_MAX // 2), _cut(Part(parameters, size), fewest, RANGES_MAX // 4)]
    return (*cut[0], *cut[1])


def blocks_of(table: Table, row_bytes: int) -> int:
    """The number of blocks, which are ranges of rows, into which a table is cut: as few as let a message (2 MiB) carry
    all rows of a block, but at least 32 (`BLOCKS_MIN`), and never more than the table has rows. `row_bytes`: of a row
    in a message. Raises ValueError for a row that no message can carry."""
    if row_bytes > PAYLOAD_BYTES_MAX:
        raise ValueError(f"a row of table {table.name!r} is {row_bytes} bytes, at most {PAYLOAD_BYTES_MAX} are sent")
    return min(table.rows, max(BLOCKS_MIN, -(-table.rows // (PAYLOAD_BYTES_MAX // row_bytes))))


def merged(parts: Iterable[Part]) -> list[Part]:
    """The same elements in the fewest parts: a part that begins where the one before it ends is joined to it."""
    whole = list[list[int]]()
    for start, stop in parts:
        if whole and whole[-1][1] == start:
            whole[-1][1] = stop
        else:
            whole.append([start, stop])
    return [Part(start, stop) for start, stop in whole]


def _cut(whole: Part, fewest: int, most: int) -> tuple[Part, ...]:
    size = whole.stop - whole.start
    if size == 0:
        return ()
    count = min(size, most, max(fewest, -(-size // RANGE_ELEMENTS)))
    return tuple(Part(whole.start + part.start, whole.start + part.stop) for part in parts(size, count))


@dataclass(frozen=True)
class Placement:
    """The chains of all ranges on `servers`, given in any order, with `copies` of each range. `apart`: pairs of servers
    that cannot reach each other. Such a pair is never in one chain, even if the chain has fewer copies then."""

    servers: tuple[PeerId, ...]
    copies: int
    apart: frozenset[frozenset[PeerId]] = frozenset()

    def chain(self, range: int) -> tuple[PeerId, ...]:
        """The servers that hold this range, head first: `copies` of them, or fewer where not as many reach each other;
        empty without servers."""
        known = self._chains
        if range not in known:
            known[range] = self._chain(range)
        return known[range]

    @cached_property
    def _chains(self) -> dict[int, tuple[PeerId, ...]]:
        return {}

    @cached_property
    def _ring(self) -> tuple[list[int], list[PeerId]]:
        points = sorted((point, server) for server in set(self.servers) for point in _points(server))
        return [point for point, _ in points], [server for _, server in points]

    def _chain(self, range: int) -> tuple[PeerId, ...]:
        points, servers = self._ring
        at = bisect_right(points, _hash(f"range {range}"))
        order = list(dict.fromkeys((*servers[at:], *servers[:at])))
        chosen: list[PeerId] = []
        for server in order:
            if len(chosen) < self.copies and not any(frozenset((server, one)) in self.apart for one in chosen):
                chosen.append(server)
        return tuple(chosen)


def balance(placement: Placement, sizes: Collection[int]) -> dict[PeerId, int]:
    """By server, the number of elements that it holds. `sizes`: the elements of each range, by its number."""
    held = dict.fromkeys(placement.servers, 0)
    for number, size in enumerate(sizes):
        for server in placement.chain(number):
            held[server] += size
    return held


@lru_cache(maxsize=1024)
def _points(server: PeerId) -> tuple[int, ...]:
    return tuple(_hash(f"server {number} {server}") for number in range(POINTS))


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
