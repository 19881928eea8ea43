"""The optimizer's own state, where peers average it with the model (``--inner averaged``).

Source: Yu, Jin & Yang, "On the linear speedup analysis of communication efficient momentum SGD" (ICML 2019, arXiv
1905.03817), whose workers average their momentum buffers wherever they average their models; so too with the moments of
Adam and its like, and with their count of steps, by which these are corrected: who comes late has all of it.

Cost: Adam's two moments make a round three times as many bytes, momentum twice as many.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, AdamW, Optimizer, RMSprop

STEP = "step"


class InnerState:
    """What of `optimizer`'s state is averaged: settled when this is made, whatever is frozen, set or added later."""

    def __init__(self, optimizer: Optimizer, model: nn.Module) -> None:
        """For the parameters of `model` that are trained. Raises ValueError for an optimizer whose state it does not
        know."""
        self._optimizer, self._model = optimizer, model
        groups = self._groups()
        self._kept = [
            (name, key)
            for name, parameter in model.named_parameters()
            if id(parameter) in groups and parameter.requires_grad
            for key in _keys(optimizer, groups[id(parameter)])
        ]

    def tensors(self) -> dict[str, Tensor]:
        """Name -> the optimizer's own tensor, in the parameters' order, looked up anew. What is not there yet becomes
        zeros, from which its first step goes on as from nothing (but for what SGD's dampening takes off). Raises
        ValueError for a parameter that is the optimizer's no longer, as of a layer that was replaced."""
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
    """What such an optimizer keeps for each parameter of the group."""
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
    """Where torch keeps it: the count of steps on the processor, unless it is counted beside the parameter."""
    beside = key != STEP or group.get("capturable") or group.get("fused")
    return parameter.device if beside else torch.device("cpu")
