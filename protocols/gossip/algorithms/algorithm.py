"""The port of gossip algorithms."""

from __future__ import annotations

from typing import Protocol

from ....aggregation.mixing.topology import Topology


class Algorithm(Protocol):
    """A gossip algorithm. It holds no state of a run, so all peers of a run may share one."""

    @property
    def own_graph(self) -> bool:
        """Whether it chooses the neighbours by itself, and a topology has no use."""
        ...

    def graph(self, topology: Topology) -> Topology:
        """The graph along which peers mix their models. `topology`: the one that the user has chosen."""
        ...
