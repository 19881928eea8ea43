"""The port of gossip algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from torch import Tensor

from ....aggregation.mixing.topology import Topology
from ...work import Correction, Update
from ..differences import DifferenceCodec


@dataclass(frozen=True, slots=True)
class Held:
    """A peer's own state between two rounds: its `model` [n], and other `tensors` of the algorithm, by name."""

    model: Tensor
    tensors: Mapping[str, Tensor] = field(default_factory=dict)


class Algorithm(Protocol):
    """A gossip algorithm, as functions of a peer's own state. It holds no state of a run, so all peers may share one.

    A round is `give` after the local steps, then the exchange of what was given, [m] on each peer, then `mix`.
    """

    @property
    def own_graph(self) -> bool:
        """Whether it chooses the neighbours by itself, and a topology has no use."""
        ...

    @property
    def splits(self) -> bool:
        """Whether what a peer gives is split between itself and its takers, and mixed with weights of 1."""
        ...

    @property
    def pairs(self) -> bool:
        """Whether a mix is an average with one neighbour, which answers amid its local steps."""
        ...

    @property
    def in_groups(self) -> bool:
        """Whether the neighbours in its graph stand in groups, each of which takes its plain mean, whoever of it is
        there."""
        ...

    @property
    def bears_codecs(self) -> bool:
        """Whether what a peer gives may be encoded, however coarsely."""
        ...

    @property
    def drawn(self) -> int | None:
        """Where peers have links to a few only: along how many a peer mixes in a round, drawn anew; None: along all; 0:
        it has to know all peers."""
        ...

    def suited(self, codec: DifferenceCodec | None) -> Self:
        """The algorithm with options that suit `codec`, where the user gave none. Raises ValueError when none do: what
        is wrong with the codec."""
        ...

    def graph(self, topology: Topology) -> Topology:
        """The graph along which peers mix. `topology`: the one that the user has chosen."""
        ...

    def begin(self, model: Tensor, parameters: int) -> Held:
        """The state of a peer that goes on from `model` [n], of which the first `parameters` elements are parameters:
        at the start, and when it has been left behind."""
        ...

    def correction(self, held: Held) -> Correction | None:
        """The correction of the next local steps; None: none."""
        ...

    def give(self, held: Held, update: Update) -> Tensor:
        """What neighbours take, [m], after the local steps of `update` from `held`."""
        ...

    def rest(self, held: Held) -> Tensor:
        """What neighbours take, [m], of a peer that takes no local steps: before its first and after its last."""
        ...

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        """The state after a round: `given` [m] is what this peer gave, and `mixed` [m] the weighted sum of this and of
        what its neighbours gave."""
        ...

    def model(self, held: Held, given: Tensor) -> Tensor:
        """The model [n] in what another peer gave, [m]. `held`: this peer's own state."""
        ...


class Usual:
    """The common part of the algorithms: whole vectors, from the neighbours in the graph that the user has chosen."""

    own_graph = False
    splits = False
    pairs = False
    in_groups = False
    bears_codecs = False
    drawn: int | None = None

    def suited(self, codec: DifferenceCodec | None) -> Self:
        return self

    def graph(self, topology: Topology) -> Topology:
        return topology

    def correction(self, held: Held) -> Correction | None:
        return None


class OfModels(Usual):
    """The common part of the algorithms that mix models and nothing else, with m = n."""

    def begin(self, model: Tensor, parameters: int) -> Held:
        return Held(model)

    def give(self, held: Held, update: Update) -> Tensor:
        return update.vector

    def rest(self, held: Held) -> Tensor:
        return held.model

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        return Held(mixed)

    def model(self, held: Held, given: Tensor) -> Tensor:
        return given
