"""An edge: the connection between two peers. It is broken if they cannot reach each other."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId

EDGES_MAX = 64
"""The most broken edges in a view: with both peers' keys, these take a thirtieth of the header."""


@dataclass(frozen=True, slots=True, order=True)
class Edge:
    """Two peers, identified by their keys, the lesser key first."""

    one: PeerId
    other: PeerId

    @classmethod
    def between(cls, *ends: PeerId) -> Edge:
        """The edge between two different peers, given in any order."""
        return cls(min(ends), max(ends))
