"""A peer of Decent-DP, run by the Python that has it: it is told what to do, and answers, in lines of JSON.

`{"index": 1, "peers": 4, "store": FILE}` has it meet the others; `{"elements": n}` makes a model of so many parameters;
`{"go": true}` takes some steps, and is answered with the `seconds` of one, less those of its computation: of a step of
the same model, alone, by the same optimizer. It is null when the parameters are not what they should be. The end of
the lines ends it.
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from decent_dp.ddp import DecentralizedDataParallel
from loguru import logger
from torch import Tensor, nn

PIECE = 1 << 20
"""Parameters in one tensor at most: several tensors make several of its buckets."""
SMALL = 1 << 18
RATE = 0.01


class Model(nn.Module):
    """Its gradient is the same number everywhere, and takes no time worth mentioning."""

    def __init__(self, elements: int, value: float) -> None:
        super().__init__()
        sizes = [min(PIECE, elements - start) for start in range(0, elements, PIECE)]
        self.pieces = nn.ParameterList([torch.full((size,), value) for size in sizes])

    def forward(self, slope: float) -> Tensor:
        return slope * torch.stack([piece.sum() for piece in self.pieces]).sum()


def optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter for _, parameter in parameters], lr=RATE)


class Steps:
    """The steps of one model, and what all peers' parameters should be."""

    def __init__(self, index: int, peers: int, elements: int) -> None:
        self.index, self.count = index, 10 if elements <= SMALL else 4
        self.wrapped = DecentralizedDataParallel(Model(elements, 0.0), optimizer, topology="ring", _local_world_size=1)
        self.slopes = [peer - (peers - 1) / 2 for peer in range(peers)]
        self.alone = Model(elements, 0.0)
        self.own = optimizer(list(self.alone.named_parameters()))
        for _ in range(2):  # it sets itself up in these, and mixes in the second for the first time
            self.wrapped(self.slopes[index]).backward()
        self.values = self._moved([-RATE * slope for slope in self.slopes], 1)
        self.step = 3

    def _moved(self, values: list[float], edge: int) -> list[float]:
        """What was sent along the edges of step `edge`, mixed and then moved by a local step."""
        odd = edge % 2
        others = [(peer + 1 if peer % 2 == odd else peer - 1) % len(values) for peer in range(len(values))]
        return [
            (own + values[other]) / 2 - RATE * slope
            for own, other, slope in zip(values, others, self.slopes, strict=True)
        ]

    def seconds(self) -> float | None:
        dist.barrier()
        began = time.perf_counter()
        for _ in range(self.count):
            self.wrapped(self.slopes[self.index]).backward()
        for op in self.wrapped._comm_ops:  # so that as many exchanges have ended as steps were taken
            if op is not None:
                op.wait()
        taken = time.perf_counter() - began
        for _ in range(self.count):
            self.values = self._moved(self.values, self.step)
            self.step += 1
        dist.barrier()
        began = time.perf_counter()
        for _ in range(self.count):
            self.alone(self.slopes[self.index]).backward()
            self.own.step()
            self.own.zero_grad()
        computation = time.perf_counter() - began
        right = self.values[self.index]
        good = all(bool(((piece - right).abs() < 1e-4).all()) for piece in self.wrapped._params)
        return max(1e-6, taken - computation) / self.count if good else None


def answers(orders: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One to each order."""
    if (about := next(orders, None)) is None:
        return
    index, peers, models = about["index"], about["peers"], dict[int, Steps]()
    dist.init_process_group("gloo", init_method=f"file://{about['store']}", rank=index, world_size=peers)
    yield {}
    chosen = 0
    for order in orders:
        if "elements" in order:
            chosen = order["elements"]
            if chosen not in models:
                models[chosen] = Steps(index, peers, chosen)
            yield {}
        else:
            yield {"seconds": models[chosen].seconds()}
    dist.destroy_process_group()


def main() -> None:
    torch.set_num_threads(1)  # as all systems here: there are more peers than cores
    logger.remove()
    to_parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    with contextlib.suppress(BrokenPipeError):
        for answer in answers(map(json.loads, sys.stdin)):
            print(json.dumps(answer), file=to_parent, flush=True)


if __name__ == "__main__":
    main()
