"""Evaluations: after some rounds, and after the last one, the coordinator evaluates the agreed model for all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from torch import Tensor

from ..conversation import Outcome
from ..work import Update
from .local_sgd import LocalSGD


class Evaluations:
    """One peer's evaluations; it evaluates only while it is the coordinator. `every`: rounds between two evaluations;
    0: this peer cannot evaluate. `tell` is called with the metrics of each evaluation."""

    def __init__(self, averaging: LocalSGD, every: int, tell: Callable[[Mapping[str, float]], None]) -> None:
        self._averaging, self._every, self._tell = averaging, every, tell
        self._outcome: Outcome | None = None
        """The outcome of the round whose model is being evaluated."""
        self._evaluated = -1
        """The last round whose model this peer has evaluated."""
        self.due: Tensor | None = None
        """The model [n] that the replica has to evaluate now; None: none."""

    @property
    def _mine(self) -> bool:
        membership = self._averaging.membership
        return self._every > 0 and membership.coordinator == membership.me.id

    def begin(self, outcome: Outcome, vector: Tensor) -> Outcome | None:
        """If this peer has to evaluate the round's model `vector` [n], because it is the coordinator, and the round is
        the last one or a multiple of `every`: keep the outcome back, set `due`, and return None. Otherwise return
        `outcome`."""
        if not self._mine or not (outcome.last or outcome.version % self._every == 0):
            return outcome
        self._outcome, self.due = outcome, vector
        return None

    def end(self, update: Update) -> Outcome | None:
        """Take `update`, the replica's evaluation of the model in `due`, and pass its metrics to `tell`. Returns the
        outcome that was kept back, with the metrics; None: no outcome was kept back."""
        outcome, self._outcome, self.due = self._outcome, None, None
        self._evaluated = self._averaging.state.round
        self._tell(update.metrics)
        if outcome is None:
            return None
        return replace(outcome, metrics=update.metrics, evaluate_s=update.seconds)

    def give_up(self) -> list[Outcome]:
        """Drop the pending evaluation: set `due` to None. Returns the outcome that was kept back for it, without its
        metrics; an empty list if there is none. A later `begin` or `finished` may set `due` again."""
        outcome, self._outcome, self.due = self._outcome, None, None
        return [] if outcome is None else [outcome]

    def finished(self) -> None:
        """Set `due` to the last model, if this peer is the coordinator by now and has not evaluated that model itself:
        the coordinator before it may have left without. To be called when the run is over for all members."""
        if self._mine and self._evaluated != self._averaging.state.round:
            self.due = self._averaging.state.vector
