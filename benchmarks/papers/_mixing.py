"""Gossip without learning: peers hold vectors of their own, and do nothing but mix them, by the protocol itself."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import Task
from samovar.protocols.testpoints import Became
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

SIZE = 64


class Vector(nn.Module):
    """A vector [size] of float64, which begins as 0."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.zeros(size, dtype=torch.float64))


def begun(part: int, size: int) -> Tensor:
    """The vector [size] of the peer with this number after its first step."""
    return torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(part))


def task(size: int) -> Task:
    """In its first step each peer's vector becomes a random one of its own; from then on nothing moves it but mixes."""

    def data(part: int, parts: int) -> Iterator[Tensor]:
        while True:
            yield begun(part, size)

    def loss(model: nn.Module, batch: Tensor) -> Tensor:
        assert isinstance(model, Vector)
        return (model.vector - batch).square().sum() / 2

    def once(optimizer: torch.optim.Optimizer, steps: int) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step == 0 else 0.0)

    def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)

    return Task(Path("mixing"), lambda: Vector(size), data, loss, optimizer=optimizer, lr_schedule=once)


def mixed(peers: int, rounds: int, size: int = SIZE, **settings: Any) -> list[Tensor]:
    """The peers' models [peers, size] after each round, those before the first first. With a codec they are not what
    neighbours mix, which are estimates of them."""
    wished = Settings(
        peers=peers, protocol="gossip", period="1", steps=rounds, device="cpu", patience_s=1e4, **settings
    )
    groups = (Group(peers=peers, link=parse_link("1gbit,5ms"), step_s=0.01),)
    world = World(task(size), Scenario(settings=wished, groups=groups))
    models: dict[int, dict[str, Tensor]] = {}

    def saw(life: str, event: object) -> None:
        if isinstance(event, Became):
            models.setdefault(event.version, {})[life] = event.vector[:size]

    world.log.judged = False
    world.log.observers.append(saw)
    run_virtual(world.run(), seed=0)
    assert all(len(each) == peers for each in models.values())
    after = [torch.stack([each[life] for life in sorted(each)]) for _, each in sorted(models.items())]
    return [torch.stack([begun(part, size) for part in range(peers)]), *after]


def distances(peers: int, rounds: int, size: int = SIZE, **settings: Any) -> list[float]:
    """How far the vectors of so many peers are from their mean after each round, over the distance before the first."""
    apart = [float((models - models.mean(0)).norm()) for models in mixed(peers, rounds, size, **settings)]
    return [one / apart[0] for one in apart]


def rate(apart: list[float], since: int) -> float:
    """-ln of the factor by which the distance falls in a round, from the round `since` on, as long as it is no error of
    rounding."""
    last = max(index for index, one in enumerate(apart) if one > 1e-11)
    return math.log(apart[since] / apart[last]) / (last - since) if last > since else math.inf
