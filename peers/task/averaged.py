"""The averaged tensors of a model as one flat vector. The set of tensors is fixed when a run begins. The tensor objects
are looked up at each use, because a model may reassign its buffers and a training loop may replace layers."""

from __future__ import annotations

from torch import Tensor, nn

from ...aggregation.vector import Layout
from .constants import Agreement, Constants
from .gradients import summed
from .optimizer_state import InnerState
from .tensors import buffers_of


class Averaged:
    """The averaged tensors: the trained parameters, then the floating-point buffers, then the optimizer's state if that
    is averaged too. With `gradients`: the gradients of the parameters in place of all these."""

    def __init__(self, model: nn.Module, inner_state: InnerState | None = None, *, gradients: bool = False) -> None:
        """Raises ValueError for a model that cannot be averaged."""
        self._model, self._inner_state, self._gradients = model, inner_state, gradients
        self._constants = Constants(model)
        self.layout = Layout.of(self.tensors())
        self.parameters = sum(parameter.numel() for parameter in self.trained())
        """The number of elements of the vector that are parameters; they come first."""

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor, in the vector's order."""
        if self._gradients:
            return summed(self._model)
        tensors = dict(self._parameters())
        for name, buffer in buffers_of(self._model).items():
            if buffer.is_floating_point() and name not in self._constants.names:
                tensors[name] = buffer
        return tensors | ({} if self._inner_state is None else self._inner_state.tensors())

    def trained(self) -> list[Tensor]:
        """The parameters, in the vector's order."""
        return list(self._parameters().values())

    def _parameters(self) -> dict[str, Tensor]:
        constant = self._constants.names
        return {name: parameter for name, parameter in self._model.named_parameters() if name not in constant}

    def begin(self) -> None:
        """Take the present values of the model's constants as the reference for later checks. Called after a restore
        from a checkpoint."""
        self._constants.begin()

    def agreement(self) -> Agreement:
        """The properties in which all peers' models must be equal. Slow where constants are large, as all are
        hashed."""
        return Agreement.on(self.layout, self._constants.tensors())

    def vector(self) -> Tensor:
        """A new vector [n] of `layout`. Raises ValueError when the model's tensors have other shapes, or its constants
        other values, than when the run began."""
        if not self._gradients:  # equal gradients change constants equally on all peers
            self._constants.check()
        try:
            return self.layout.flatten(self.tensors())
        except ValueError as error:
            raise _changed(error) from None

    def load(self, vector: Tensor) -> None:
        """Copy `vector` [n] into the model's tensors. Raises ValueError when these have other shapes than when the run
        began."""
        try:
            self.layout.load(vector, self.tensors())
        except ValueError as error:
            raise _changed(error) from None


def _changed(error: ValueError) -> ValueError:
    return ValueError(f"the model is another than when the run began: {error}")
