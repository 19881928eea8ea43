"""An edge: two peers and what is between them."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId

EDGES_MAX = 64
"""Broken ones in a view: so many, with their keys, take a thirtieth of a header."""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """The lesser key comes first."""

    one: PeerId
    other: PeerId

    @classmethod
    def between(cls, *ends: PeerId) -> Edge:
        return cls(min(ends), max(ends))
