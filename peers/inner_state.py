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


def inner_state(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """Name -> tensor of `optimizer`'s state for the parameters of `model`, in their order; what is not there yet
    becomes zeros, from which its first step goes on as from nothing (but for what SGD's dampening takes off). Raises
    ValueError for an optimizer whose state it does not know."""
    groups = {id(parameter): group for group in optimizer.param_groups for parameter in group["params"]}
    return {
        f"optimizer/{name}/{key}": _there(optimizer, parameter, key, groups[id(parameter)])
        for name, parameter in model.named_parameters()
        if id(parameter) in groups and parameter.requires_grad
        for key in _keys(optimizer, groups[id(parameter)])
    }


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


def _there(optimizer: Optimizer, parameter: Tensor, key: str, group: Mapping[str, Any]) -> Tensor:
    state: dict[str, Any] = optimizer.state[parameter]
    if state.get(key) is None:
        on_device = group.get("capturable") or group.get("fused")
        place = parameter.device if on_device else torch.device("cpu")
        state[key] = torch.zeros((), device=place) if key == STEP else torch.zeros_like(parameter).detach()
    kept: Tensor = state[key]
    return kept
