"""Convolutions in little memory, for evaluations of many samples at once.

Without its libraries for convolutions (`machine.torch_imports`) PyTorch unfolds the input of a layer, of all samples at
once: that takes the input's memory as many times as the kernel has places, 9 times for 3 x 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

_UNFOLDED_BYTES = 2 << 20
_KINDS = (torch.conv1d, torch.conv2d, torch.conv3d)


class SmallConvolutions(TorchFunctionMode):
    """While in this context, convolutions on the CPU without gradients are computed for a few samples at a time: those
    whose unfolded input takes at most 2 MiB, and at least one. The results have the same bits. With oneDNN, which
    unfolds nothing, all samples are computed at once."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _KINDS and len(args) > 1 and _unfolds(args[0], args[1]):
            return _by_pieces(lambda samples: function(samples, *args[1:], **(kwargs or {})), args[0], args[1])
        return function(*args, **(kwargs or {}))


def _unfolds(samples: Tensor, weight: Tensor) -> bool:
    alone = torch.is_grad_enabled() or torch.backends.mkldnn.enabled
    return not alone and samples.device.type == "cpu" and samples.dim() == weight.dim()


def _by_pieces(convolve: Callable[[Tensor], Tensor], samples: Tensor, weight: Tensor) -> Tensor:
    unfolded = samples[:1].nbytes * weight[0, 0].numel()
    at_a_time = max(1, _UNFOLDED_BYTES // max(1, unfolded))
    if len(samples) <= at_a_time:
        return convolve(samples)
    first, *others = samples.split(at_a_time)
    found = convolve(first)
    whole = found.new_empty(len(samples), *found.shape[1:])
    whole[:at_a_time] = found
    for number, piece in enumerate(others, 1):
        whole[number * at_a_time :][: len(piece)] = convolve(piece)
    return whole
