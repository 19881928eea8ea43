"""A worker's state in a run with a parameter server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from ..conversation import Outcome
from .filtering import Residual


@dataclass(slots=True)
class State:
    """A worker's state: its clock (the number of its turns), its local steps in the run (`step`), and the `model` [n]
    from which it goes on; where workers have models of their own (elastic averaging), this is its own one, also after
    its end. `read`: by range, the number of updates in the values of its last pull. `residual`: what the filters have
    kept back. `needed`: by table, the rows that the next steps need; None: the replica has not told yet. `own`: the
    model is that after a turn of this worker; False: it has taken none, or none since it joined late. `over`: it takes
    no more steps."""

    clock: int
    step: int
    model: Tensor
    read: tuple[int, ...] = ()
    residual: Residual = field(default_factory=Residual)
    needed: Mapping[str, Tensor] | None = None
    own: bool = False
    over: bool = False
    outcome: Outcome | None = field(default=None)
    """The outcome of a turn whose model is still to be evaluated, or whose push was under way when this worker was
    stopped; None: there is none."""
