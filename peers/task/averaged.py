"""The averaged tensors of a model as one flat vector. The set of tensors is fixed when a run begins, except for
parameters that are unfrozen during the run (`unfreezing`). The tensor objects are looked up at each use, because a
model may reassign its buffers and a training loop may replace layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from ...aggregation.vector import NAMES, NO_LAYOUT, Layout
from .constants import Constants
from .gradients import summed
from .optimizer_state import InnerState
from .tensors import buffers_of
from .unfreezing import Unfrozen


class Averaged:
    """The averaged tensors of `model`, in the vector's order: the trained parameters, then the floating-point buffers
    that are no constants, then the optimizer's state if that is averaged too (`inner_state`). With `gradients` the
    vector has in place of all these the layout of `summed`: that of the parameters' gradients, and of flags that tell
    which parameters have one. No parameter may be unfrozen where gradients or an optimizer's state are averaged.
    `tables`: the `id()` of each parameter that is left out, because its rows are exchanged by themselves."""

    def __init__(
        self,
        model: nn.Module,
        inner_state: InnerState | None = None,
        *,
        gradients: bool = False,
        tables: frozenset[int] = frozenset(),
    ) -> None:
        """Raises ValueError for a model that cannot be averaged: with a sparse or quantized tensor, or with nothing to
        average."""
        self._model, self._inner_state, self._gradients, self._tables = model, inner_state, gradients, tables
        self._constants = Constants(model)
        self.unfrozen = Unfrozen(self._constants, self._first_layout())
        self.parameters = sum(parameter.numel() for parameter in self.trained())
        """The number of trained parameters' elements in the vector when the run began. They are the vector's first
        elements, but for the flags where gradients are averaged: these follow the first parameter, and do not count."""

    @property
    def layout(self) -> Layout:
        """The present layout of the vector."""
        return self.unfrozen.layout()

    def _first_layout(self) -> Layout:
        tensors = self._tensors()
        if self._tables and not tensors:
            return NO_LAYOUT
        first = Layout.of(tensors)
        if self._gradients or self._inner_state is not None:
            return first
        kept = {*NAMES} - ({torch.float64} - {first.dtype})  # the vector's type must stay
        constant, every = self._constants.names, dict(self._model.named_parameters())
        every = {name: one for name, one in every.items() if id(one) not in self._tables}
        frozen = {name for name in every if name in constant and every[name].dtype in kept}
        parameters = {name: one for name, one in every.items() if name in frozen or name not in constant}
        return Layout.of(parameters | self._tensors(), frozen)

    def _tensors(self, names: tuple[str, ...] | None = None) -> dict[str, Tensor]:
        """Name -> tensor, in the vector's order. `names`: as for `vector`."""
        if self._gradients:
            return summed(self._model)
        tensors = dict(self._parameters())
        for name in () if names is None else {*self.unfrozen.names}.difference(names):
            del tensors[name]
        for name, buffer in buffers_of(self._model).items():
            if buffer.is_floating_point() and name not in self._constants.names:
                tensors[name] = buffer
        return tensors | ({} if self._inner_state is None else self._inner_state.tensors())

    def trained(self) -> list[Tensor]:
        """The trained parameters, in the vector's order, with those that were unfrozen during the run, and without
        `tables`."""
        return list(self._parameters().values())

    def _parameters(self) -> dict[str, Tensor]:
        constant = self._constants.names
        every = self._model.named_parameters()
        return {name: one for name, one in every if name not in constant and id(one) not in self._tables}

    def begin(self) -> None:
        """Take the present values of the model's constants as the reference for later checks. Called after a restore
        from a checkpoint."""
        self._constants.begin()

    def vector(self, names: tuple[str, ...] | None = None) -> Tensor:
        """The model as a new vector [n]. `names`: of the parameters that were unfrozen during the run, those that the
        vector is to have; None: all. Raises ValueError when the model's tensors have other shapes than when the run
        began, or its constants were changed (`Constants.check`; not where gradients are averaged)."""
        if not self._gradients:  # equal gradients change constants equally on all peers
            self._constants.check()
        try:
            return self.unfrozen.layout(names).flatten(self._tensors(names))
        except ValueError as error:
            raise _changed(error) from None

    def load(self, vector: Tensor, names: tuple[str, ...] | None = None) -> None:
        """Copy `vector` [n] into the model's tensors. `names`: of the parameters that were unfrozen during the run,
        those that the vector has; None: all. Raises ValueError when the vector is not of that layout, or the tensors
        have other shapes than when the run began."""
        try:
            self.unfrozen.layout(names).load(vector, self._tensors(names))
        except ValueError as error:
            raise _changed(error) from None

    @property
    def can_lie_in(self) -> bool:
        """Whether the model can lie in one vector (`lie_in`): it has no constants and no `tables`, and all its tensors
        are trained parameters of one type on the CPU, but for integer buffers and buffers outside the state_dict."""
        tensors, dtype = self._tensors(), self.layout.dtype
        movable = all(one.dtype == dtype and one.device.type == "cpu" for one in tensors.values())
        return movable and self.parameters == self.layout.size and not (self._tables or self._constants.names)

    def lie_in(self, vector: Tensor) -> None:
        """Make the model's parameters views of `vector` [n]: their values become those of the vector, and each later
        change of one is a change of the other. Only for a model that `can_lie_in` a vector."""
        self._lie_in(vector, self._parameters())

    def rest_in(self, vector: Tensor) -> list[Tensor]:
        """Free the memory of parameters: make them views of `vector` [n], which has their values. Returns the
        parameters for which this was done: all that lie on the CPU, in the vector's type, in memory of which no other
        parameter or buffer of the model is a view."""
        every = (*self._model.parameters(), *self._model.buffers())
        places = Counter(one.untyped_storage().data_ptr() for one in every if one.layout is torch.strided)
        alone = {
            name: one
            for name, one in self._parameters().items()
            if one.dtype == vector.dtype and one.device.type == "cpu" and one.is_contiguous()
            if one.untyped_storage().nbytes() == one.nbytes and places[one.untyped_storage().data_ptr()] == 1
        }
        self._lie_in(vector, alone)
        return [*alone.values()]

    def _lie_in(self, vector: Tensor, parameters: Mapping[str, Tensor]) -> None:
        for slot in self.layout.slots:
            if (parameter := parameters.get(slot.name)) is not None:
                parameter.data = vector[slot.start : slot.stop].view(slot.shape)


def _changed(error: ValueError) -> ValueError:
    return ValueError(f"the model is another than when the run began: {error}")
