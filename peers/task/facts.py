"""The properties of a peer's replica, which is its model, data and optimizer, that the peer needs before it joins a
run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from ...aggregation.vector import Layout
from .constants import Agreement
from .definitions import Definition, agreed
from .headline import Headline


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The properties of a replica that its peer needs before it joins.

    `layout`: layout of the averaged vector. `vector` [n]: its initial value. `parameters`: the number of elements at
    the beginning of the vector that are parameters, which local steps change; None: all n. `agreement`: the properties
    in which all peers' models must be equal; None: the layout alone. `can`: the kinds of work that the replica can do,
    of "steps", "gradients", "queries", "evaluation"; and "sharing" if its model may lie in memory that others share.
    `tables`: by name, the initial values [rows, width] of the tables whose rows are exchanged by themselves; they are
    not in the vector. `scales`: declared scales of its metrics, by name; `headline`: the metric by which evaluated
    models are compared; None: it does not evaluate. `source`: the kind of file that has the model, in words. `defined`:
    other definitions of the task file, which the run's settings ask for.
    """

    layout: Layout
    vector: Tensor
    parameters: int | None = None
    agreement: Agreement | None = None
    can: frozenset[str] = frozenset({"steps"})
    tables: Mapping[str, Tensor] = field(default_factory=dict)
    scales: Mapping[str, str] = field(default_factory=dict)
    headline: Headline | None = None
    source: str = "task file"
    defined: Mapping[str, Definition] = field(default_factory=dict)

    def without_model(self) -> Facts:
        """These facts for a peer that trains nothing, such as a server: it can do no work (`can` is empty) and does not
        evaluate (`headline` is None). All other facts stay as they are, also the initial `vector`."""
        return replace(self, can=frozenset(), headline=None)

    def on(self, defined: Mapping[str, Definition]) -> Facts:
        """These facts with the task's definitions `defined`, which become part of the properties that must be equal on
        all peers."""
        agreement = agreed(self.agreement or Agreement.on(self.layout), defined)
        return replace(self, defined=defined, agreement=agreement)
