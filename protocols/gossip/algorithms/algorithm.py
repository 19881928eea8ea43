"""The port of gossip algorithms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, Self

from torch import Tensor

from ....aggregation.mixing.topology import Topology
from ...work import Correction, Update
from .differences import DifferenceCodec


@dataclass(frozen=True, slots=True)
class Held:
    """A peer's own state between two rounds: its `model` [n], and the algorithm's other `tensors` by name. The first
    `parameters` elements of the model are parameters; None: all."""

    model: Tensor
    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    parameters: int | None = None


class Algorithm(Protocol):
    """A gossip algorithm, as functions of a peer's own state. It holds no state of a run, so all peers may share one.

    In each round a peer takes local steps; `give` makes the vector [m] that its neighbours take; the peers exchange
    these vectors; `mix` makes the peer's new state from their weighted sum. A taker is a peer that takes this peer's
    vector.
    """

    @property
    def own_graph(self) -> bool:
        """Whether the algorithm chooses the neighbours itself, so that a topology from the user would not be used."""
        ...

    @property
    def splits(self) -> bool:
        """Whether the vector that a peer gives is split into equal shares, one for itself and one for each taker.
        Received shares are then added with a weight of 1."""
        ...

    @property
    def pairs(self) -> bool:
        """Whether a mix is an average with one neighbour, which answers in the middle of its local steps
        (`gossip.pairs`)."""
        ...

    @property
    def in_groups(self) -> bool:
        """Whether the graph consists of groups whose members are all neighbours of each other. Each group then takes
        the plain mean of the vectors that have arrived."""
        ...

    @property
    def bears_codecs(self) -> bool:
        """Whether the algorithm converges when the given vectors are encoded with any codec, however coarse."""
        ...

    @property
    def drawn(self) -> int | None:
        """For runs in which a peer has links to only a few others: with how many of them it mixes in a round, drawn
        anew in each. None: with all of them. 0: the algorithm cannot run there, because a peer has to know all others.
        """
        ...

    def suited(self, codec: DifferenceCodec | None) -> Self:
        """The algorithm, with options that the user has not given set to suit `codec` (None: no codec). Raises
        ValueError, which says what is wrong with the codec, when no options suit it."""
        ...

    def graph(self, topology: Topology) -> Topology:
        """The graph along which peers mix. `topology`: the one that the user has chosen, which most algorithms
        return."""
        ...

    def begin(self, model: Tensor, parameters: int) -> Held:
        """The state of a peer that continues from `model` [n], without any former state: at the start, and when it
        takes over the others' model because it was left behind. The first `parameters` elements of the model are
        parameters."""
        ...

    def correction(self, held: Held) -> Correction | None:
        """The correction to apply in the next local steps, which begin from the state `held`; None: there is none."""
        ...

    def give(self, held: Held, update: Update) -> Tensor:
        """The vector [m] that this peer gives to its takers after local steps that led from the state `held` to
        `update`."""
        ...

    def rest(self, held: Held) -> Tensor:
        """The vector [m] that a peer in the state `held` gives while it takes no local steps: before its first and
        after its last."""
        ...

    def mix(self, held: Held, update: Update, given: Tensor, mixed: Tensor) -> Held:
        """This peer's state after a round. `held`: its state before; `update`: the result of its local steps; `given`
        [m]: the vector that it gave; `mixed` [m]: the weighted sum of `given` and the vectors that its neighbours gave,
        in memory of its own, which the state may take.
        """
        ...

    def model(self, held: Held, given: Tensor) -> Tensor:
        """The model [n] that a vector `given` [m] by another peer contains. `held`: this peer's own state."""
        ...


class Usual:
    """Base class with the usual answers: whole vectors, from the neighbours in the user's topology, without a
    correction."""

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
    """Base class of the algorithms in which the given vector is the model itself (m = n), and so is the state."""

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
