"""A peer's own copy of the shared model. Each work of the conversation begins with a change of this copy
(`protocols.work`), and may correct the local steps that follow."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, assert_never

import torch
from torch import Tensor, nn

from ...aggregation.rows import Rows
from ...aggregation.vector import Layout, Part, all_finite
from ...protocols.work import (
    Add,
    Begin,
    Blend,
    Correction,
    Keep,
    Load,
    Share,
    Steps,
    StepWith,
    Update,
)
from .averaged import Averaged
from .constants import Agreement
from .corrector import Corrector
from .facts import Facts
from .optimizer_state import InnerState
from .resting import Resting
from .row_tables import RowTables
from .unfreezing import Unfrozen

NO_LOCK = nullcontext()
MEND = "lower the learning rate or clip gradients"


class Diverged(ValueError):
    """The training loss or the model's weights are not finite."""


class ModelCopy:
    """A model and its optimizer, and the vector that peers average of them (`Averaged`)."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        inner: str,
        *,
        gradients: bool = False,
        tables: RowTables | None = None,
    ) -> None:
        """`inner` ("kept", "reset" or "averaged"): the treatment of the optimizer's own state at an average.
        `gradients`: the vector holds gradients in place of the model. `tables`: those whose rows are exchanged by
        themselves, and are not in the vector; None: there are none. Raises ValueError for a model or optimizer that
        cannot be averaged."""
        self.optimizer, self.tables = optimizer, tables
        state = InnerState(optimizer, model) if inner == "averaged" else None
        apart = frozenset[int]() if tables is None else tables.parameters
        self._averaged = Averaged(model, state, gradients=gradients, tables=apart)
        if tables is not None and self.layout.size and self.layout.dtype != tables.dtype:
            raise ValueError(f"the tables are {tables.dtype} and the rest {self.layout.dtype}: give all one type")
        self._model, self._grows = model, False
        self._begun: Begin | None = None
        self._brought: weakref.ref[Tensor] | None = None
        self._corrector: Corrector | None = None
        self.resting = Resting(self._averaged)
        """Where the parameters lie between works."""

    @property
    def layout(self) -> Layout:
        """The present layout of `vector`. It grows when a parameter is unfrozen."""
        return self._averaged.layout

    @property
    def unfrozen(self) -> Unfrozen:
        """The record of the parameters that were unfrozen during the run."""
        return self._averaged.unfrozen

    @property
    def parameters(self) -> int:
        """The number of trained parameters' elements in the vector when the run began (`Averaged.parameters`)."""
        return self._averaged.parameters

    @property
    def vector(self) -> Tensor:
        """The vector [n] that peers would average now, a new tensor: the model, or, with `gradients`, its gradients.
        Raises ValueError when the tensors have other shapes than when the run began, or a constant was changed
        (`Averaged.vector`)."""
        return self._averaged.vector()

    @property
    def learning_rate(self) -> float:
        """The learning rate of the optimizer's first group of parameters."""
        return float(self.optimizer.param_groups[0]["lr"])

    def agreement(self) -> Agreement:
        """The properties in which the models of all peers must be equal when they begin: the layout and the constants,
        as a hash. Slow where constants are large (`Unfrozen.agreement`)."""
        return self.unfrozen.agreement()

    def facts(self, vector: Tensor, *can: str) -> Facts:
        """The facts of a replica with the initial `vector` [n]. `can`: the kinds of work that it can do, without
        "sharing", which is added if the model allows it. Slow for a model with large constants, because all of them are
        hashed."""
        tables, agreement = self.tables, self.agreement()
        shares = {"sharing"} if self._averaged.can_lie_in else set[str]()
        return Facts(
            layout=self.unfrozen.first,
            vector=vector,
            parameters=self.parameters,
            agreement=agreement if tables is None else tables.agreed(agreement),
            can=frozenset(can) | shares,
            tables={} if tables is None else tables.tensors(),
        )

    def restored(self) -> None:
        """Take the present constants as those with which later ones are compared: a checkpoint was restored."""
        self._averaged.begin()

    def bring(self) -> Tensor:
        """The model as a new vector [n] for the conversation, or the shared vector in which it lies (`Share`). If a
        later `Load` has this very tensor, the model is taken to hold its values, and is not written. Raises Diverged
        when an element is not finite, and ValueError for a parameter that was unfrozen although it may not be, or a
        constant that was changed."""
        self.notice()
        vector = self._begun.vector if isinstance(self._begun, Share) else self.vector
        if not all_finite(vector):
            first = next(slot.name for slot in self.layout.slots if not all_finite(vector[slot.start : slot.stop]))
            weights = f"the model's weights are not finite any more (learning rate {self.learning_rate:g})"
            raise Diverged(f"{weights}, first those of {first!r}; {MEND}")
        self._brought = weakref.ref(vector)
        self.resting.lie_in(vector)
        return vector

    def update(self, **more: Any) -> Update:
        """The update that brings the model to the conversation. `more`: further fields of the update. Raises Diverged
        and ValueError, as `bring` does, and Diverged when a row that was loaded last is not finite."""
        vector, unfrozen = self.bring(), self.unfrozen
        more |= {"learning_rate": self.learning_rate, "grown": unfrozen.names, "base": unfrozen.base}
        return Update(vector=vector, rows=self._rows(), **more)

    def needed(self, batches: Iterable[Any]) -> Mapping[str, Tensor]:
        """By table, the numbers [k] of the rows that these batches need; empty for a model without tables. Raises
        TaskError."""
        return {} if self.tables is None else self.tables.needed(batches)

    def _rows(self) -> Mapping[str, Rows]:
        """The rows from which the local steps began, as they are now."""
        try:
            return {} if self.tables is None else self.tables.rows()
        except ValueError as error:
            raise Diverged(f"{error} (learning rate {self.learning_rate:g}); {MEND}") from None

    def begin(self, begin: Begin) -> bool:
        """Apply `begin`, the change of the model with which a work of the conversation begins (`protocols.work`),
        unless this very object was the last one applied. Returns whether it is applied and a new round begins with it:
        with a `Load` that is not amid a round, and with a `Share`. Raises ValueError for a `StepWith`, because this
        replica steps by itself, and for a vector that does not fit the model."""
        has_begun, self._begun = self.has_begun(begin), begin  # the former one's vector goes first
        self.resting.wake()
        if has_begun:
            return False
        match begin:
            case Keep():
                pass
            case Load():
                self.unfrozen.settle(begin.grown)
                if self._brought is None or begin.vector is not self._brought():
                    self.load(begin.vector, begin.grown)
                if self.tables is not None:
                    self.tables.load(begin.rows)
                if begin.fresh_optimizer:
                    self.optimizer.state.clear()
                return not begin.amid
            case Add(change, part, grown):
                self.unfrozen.settle(grown)
                self._merge(change, part, None, grown)
            case Blend(vector, share, part, grown):
                self.unfrozen.settle(grown)
                self._merge(vector, part, share, grown)
            case Share(vector):
                self._averaged.lie_in(vector)
                return True
            case StepWith():
                raise ValueError("this replica brings models, and was brought a gradient")
            case _:
                assert_never(begin)
        return False

    def has_begun(self, begin: Begin) -> bool:
        """Whether `begin`, this very object, was the last one applied."""
        return begin is self._begun

    @property
    def lock(self) -> AbstractContextManager[None]:
        """A context within which each local step is taken: the lock of a vector in which the models of several peers
        lie (`Share`), if the last begin was one; else a context that does nothing."""
        return self._begun.lock if isinstance(self._begun, Share) else NO_LOCK

    @contextmanager
    def being(self, vector: Tensor) -> Iterator[None]:
        """While in this context, the model is `vector` [n]; afterwards it is again what it was. Peers that share the
        model (`Share`) do not notice it."""
        if isinstance(self._begun, Share):
            self._averaged.lie_in(vector)
            try:
                yield
            finally:
                self._averaged.lie_in(self._begun.vector)
            return
        now = self.vector
        self.show(vector)
        try:
            yield
        finally:
            self.load(now)

    def holds(self, vector: Tensor) -> bool:
        """Whether the last begin loaded the very tensor `vector`, so that an evaluation need not load it again. It is
        not looked at whether local steps have changed the model since. False while this peer has unfrozen parameters
        that are not in the vector."""
        return isinstance(self._begun, Load) and self._begun.vector is vector and not self.unfrozen.base

    def load(self, vector: Tensor, grown: tuple[str, ...] | None = None) -> None:
        """Write `vector` [n] to the model. `grown`: of the parameters that were unfrozen during the run, those that the
        vector has; None: all. The others keep their values. Raises ValueError when the vector does not fit the
        model."""
        self.resting.wake()
        self._averaged.load(vector, grown)

    def show(self, vector: Tensor) -> None:
        """Write `vector` [n], a model on which all peers agreed, to the model. Parameters that this peer has unfrozen
        and the others do not average yet get the values that they had while frozen."""
        self.resting.wake()
        self.unfrozen.refreeze(self._model)
        self.load(vector, self.unfrozen.agreed)

    def _merge(self, other: Tensor, part: Part, share: float | None, grown: tuple[str, ...]) -> None:
        now, here = self._averaged.vector(grown), slice(part.start, part.stop)
        if share is None:
            now[here] += other[here]
        else:
            now[here].lerp_(other[here], 1 - share)
        self.load(now, grown)

    def prepare(self, job: Steps) -> None:
        """Prepare for the local steps of `job`: correct them by its `correction` (None: no longer), and unfreeze the
        parameters in its `unfreeze`; it freezes none. If `unfreeze` is None, those that the task's code unfreezes are
        not noticed from now on. Raises ValueError for a parameter whose values were changed while it was frozen."""
        self.correct(job.correction)
        self._grows, self.resting.allowed = job.unfreeze is not None, job.only_read
        self.unfrozen.train(job.unfreeze or ())

    def notice(self) -> None:
        """Note the parameters that the task's code has unfrozen by itself, if the last `prepare` allowed that; from now
        on they are in the vector. Raises ValueError for one whose values were changed while it was frozen."""
        if self._grows:
            self.unfrozen.notice()

    def correct(self, correction: Correction | None) -> None:
        """Correct all local steps from now on by `correction`; None: no correction."""
        if correction is None:
            self._corrector = None
        elif self._corrector is None or self._corrector.correction is not correction:
            self._corrector = Corrector(correction, self._averaged.trained())

    def before_step(self) -> None:
        """Correct the gradients, between backward and the optimizer's step. Raises TaskError or ValueError when the
        task has changed the model or optimizer in a way that the run cannot follow."""
        self.notice()
        self.unfrozen.check(self._model, self.optimizer)
        if self.tables is not None:
            self.tables.check()
        if self._corrector is not None:
            self._corrector.before_step(self._averaged.trained())

    def after_step(self) -> None:
        """Correct the parameters, if the correction is one of them. To be called after the optimizer's step."""
        if self._corrector is not None:
            self._corrector.after_step(self._averaged.trained())
