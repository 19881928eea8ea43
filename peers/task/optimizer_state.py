"""The optimizer's own state, averaged with the model (``--inner averaged``).

Source: Yu, Jin & Yang, "On the linear speedup analysis of communication efficient momentum SGD" (ICML 2019, arXiv
1905.03817): workers average their momentum buffers whenever they average their models. The same is done here with the
moments of Adam and similar optimizers, and with the step count of their bias correction, so that a latecomer receives
the whole state.

Cost: with Adam's two moments a round carries three times as many bytes, with momentum twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

from ...aggregation.vector import all_finite

STEP = "step"


class InnerState:
    """The state tensors of `optimizer` that peers average. The set of tensors is fixed at construction, even if
    parameters are frozen or added later, or options of the optimizer are set later."""

    def __init__(self, optimizer: Optimizer, model: nn.Module) -> None:
        """Covers the trained parameters of `model` that `optimizer` has. Raises ValueError for an optimizer other than
        SGD, Adam, AdamW, RMSprop and Adagrad."""
        self._optimizer, self._model = optimizer, model
        groups = self._groups()
        self._kept = [
            (name, key)
            for name, parameter in model.named_parameters()
            if id(parameter) in groups and parameter.requires_grad
            for key in _keys(optimizer, groups[id(parameter)])
        ]

    def tensors(self) -> dict[str, Tensor]:
        """Name -> the optimizer's own tensor, in the parameters' order, looked up at each call. Missing state is
        created as zeros, from which the optimizer's first step gives the same result as from none (except under SGD's
        dampening). Raises ValueError for a parameter that the optimizer no longer has, e.g. of a replaced layer."""
        groups, now = self._groups(), dict(self._model.named_parameters())
        found = {}
        for name, key in self._kept:
            parameter = now.get(name)
            if parameter is None or id(parameter) not in groups:
                raise ValueError(f"the optimizer has no parameter {name!r} any more, and its state is to be averaged")
            place = _place(key, parameter, groups[id(parameter)])
            found[f"optimizer/{name}/{key}"] = self._there(parameter, key, place)
        return found

    def _groups(self) -> dict[int, dict[str, Any]]:
        return {id(parameter): group for group in self._optimizer.param_groups for parameter in group["params"]}

    def _there(self, parameter: Tensor, key: str, place: torch.device) -> Tensor:
        state: dict[str, Any] = self._optimizer.state[parameter]
        if state.get(key) is None:
            state[key] = torch.zeros((), device=place) if key == STEP else torch.zeros_like(parameter).detach()
        kept: Tensor = state[key]
        return kept


def _keys(optimizer: Optimizer, group: Mapping[str, Any]) -> Iterator[str]:
    """The state keys that this optimizer keeps for each parameter of the group."""
    match optimizer:
        case SGD():
            kept = {"momentum_buffer": group["momentum"]}
        case Adam() | AdamW():
            kept = {STEP: True, "exp_avg": True, "exp_avg_sq": True, "max_exp_avg_sq": group["amsgrad"]}
        case RMSprop():
            kept = {STEP: True, "square_avg": True, "momentum_buffer": group["momentum"], "grad_avg": group["centered"]}
        case Adagrad():
            kept = {STEP: True, "sum": True}
        case _:
            raise ValueError(
                f"the state of {type(optimizer).__name__} cannot be averaged, only that of SGD, Adam, AdamW, RMSprop "
                "and Adagrad: use --inner kept or reset"
            )
    return (key for key, is_kept in kept.items() if is_kept)


def _place(key: str, parameter: Tensor, group: Mapping[str, Any]) -> torch.device:
    """The device on which torch keeps this state: the step count is on the CPU, unless capturable or fused puts it
    beside the parameter."""
    beside = key != STEP or group.get("capturable") or group.get("fused")
    return parameter.device if beside else torch.device("cpu")


def forget_if_bad(optimizer: Optimizer) -> None:
    """Clear the whole state of `optimizer` if one of its tensors holds a number that is not finite."""
    kept = (value for state in optimizer.state.values() for value in state.values())
    if not all(all_finite(value) for value in kept if isinstance(value, Tensor) and value.is_floating_point()):
        optimizer.state.clear()
