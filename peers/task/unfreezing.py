"""Parameters that are unfrozen during a run (gradual unfreezing): which they are, and the values that they had before.

A peer notices such a parameter before its optimizer's next step, while it still has its frozen values. The other peers
add these values to the model that all had, and so average the parameter from then on (`protocols.local_sgd.growth`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...aggregation.growth import grown, in_order
from ...aggregation.vector import Layout
from .constants import Agreement, Constants

_BASE = "frozen/"


class Unfrozen:
    """The parameters of one model that were unfrozen since the run began. `constants`: its frozen parameters; `first`:
    the layout with which the run began."""

    def __init__(self, constants: Constants, first: Layout) -> None:
        self.first = first
        self.names: tuple[str, ...] = ()
        """The names of all these parameters, in the model's order."""
        self.base: dict[str, Tensor] = {}
        """By name, the values [k] that a parameter had while frozen, for the parameters in `names` that the others do
        not average yet."""
        self.unchecked: set[str] = set()
        """The parameters that this peer has unfrozen because others train them, until `check` has found them in its
        optimizer."""
        self._constants = constants
        self._agreement: Agreement | None = None

    @property
    def agreed(self) -> tuple[str, ...]:
        """Those of `names` that all peers average by now."""
        return tuple(name for name in self.names if name not in self.base)

    def layout(self, names: tuple[str, ...] | None = None) -> Layout:
        """The layout of the vector of a model of which these parameters were unfrozen during the run: `names`; None:
        all that were."""
        return grown(self.first, self.names if names is None else names)

    def notice(self) -> None:
        """Note the parameters that the user's code has unfrozen since the last call. Raises ValueError for one whose
        values were changed while it was frozen."""
        if thawed := self._constants.thawed():
            self._take_up(thawed)

    def train(self, names: Collection[str]) -> None:
        """Unfreeze the parameters `names` here, but for those that are in the record already, because other peers train
        them. Raises ValueError for one that this peer has changed while it was frozen."""
        if new := {*names}.difference(self.names):
            self.unchecked |= new
            self._take_up(new)

    def settle(self, names: tuple[str, ...]) -> None:
        """Note that all peers average the parameters `names` from now on, and unfreeze those that are still frozen
        here. Raises ValueError for one that this peer has changed while it was frozen."""
        if names:
            self.train(names)
            self.base = {name: base for name, base in self.base.items() if name not in names}

    def _take_up(self, names: Collection[str]) -> None:
        new, base = in_order(self.first, names), dict(self.base)
        for name, parameter in self._constants.release(new).items():
            parameter.requires_grad_(True)
            base[name] = parameter.detach().reshape(-1).to("cpu", self.first.dtype, copy=True)
        self.base = base
        self.names = in_order(self.first, {*self.names, *new})

    def check(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Raises ValueError for a parameter that was unfrozen by `train` and that `optimizer` does not have. Each is
        looked for once."""
        if self.unchecked:
            held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
            for name, parameter in model.named_parameters():
                if name in self.unchecked and id(parameter) not in held:
                    raise ValueError(
                        f"the others train parameter {name!r}, which was frozen when the run began, and this peer's "
                        "optimizer does not have it: give it all parameters from the beginning, frozen ones too"
                    )
            self.unchecked = set()

    def refreeze(self, model: nn.Module) -> None:
        """Set the parameters that this peer has unfrozen and the others do not average yet to the values that they had
        while frozen."""
        now = dict(model.named_parameters())
        with torch.no_grad():
            for name, base in self.base.items():
                now[name].copy_(base.view(now[name].shape))

    def agreement(self) -> Agreement:
        """The properties in which all peers' models must be equal when they begin. Slow where constants are large,
        because all of them are hashed."""
        if self._agreement is None or not self.names:
            self._agreement = Agreement.on(self.first, self._constants.tensors())
        return self._agreement

    def to_plain(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and numbers for a checkpoint, from which `restore` unfreezes the same parameters; both empty if none
        was unfrozen."""
        if not self.names:
            return {}, {}
        told, base = self.agreement(), {_BASE + name: tensor for name, tensor in self.base.items()}
        return base, {"unfrozen": list(self.names), "agreement": [told.digest, told.words]}

    def restore(self, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
        """Unfreeze the parameters that a checkpoint names which `to_plain` wrote. Called on a newly made model, before
        its values are restored. Raises ValueError for a parameter that is not frozen in the model."""
        names = numbers.get("unfrozen", ())
        if odd := {*names}.difference(in_order(self.first, names)):
            raise ValueError(f"parameter {min(odd)!r} was frozen when it began")
        if names:
            self._take_up(names)
            self.base = {name: tensors[_BASE + name] for name in names if _BASE + name in tensors}
            self._agreement = Agreement(*numbers["agreement"])
