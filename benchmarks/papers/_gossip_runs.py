"""Training by gossip in virtual time, for `gossip.py`: curves, paces, bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _study import play
from _tasks import mlp_s
from sklearn.datasets import load_digits
from torch import Tensor, nn

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import Task
from samovar.protocols.gossip.messages import Published
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.event_log import peer_of
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World

HIDDEN, TESTED = 512, 400
"""Of a study: what was measured, and what of it is claimed."""


class Ran(NamedTuple):
    """Of a run: the records of all exchanges, and those of each peer."""

    records: Sequence[ExchangeRecord]

    def of(self, peer: int) -> list[ExchangeRecord]:
        return [one for one in self.records if one.peer == str(peer)]

    def reached_s(self, loss: float) -> float:
        """When the first peer's own model had that loss, as the mean of its last three evaluations; infinite: never."""
        judged = [one for one in self.of(0) if "accuracy" in one.metrics]
        for at in range(2, len(judged)):
            if sum(one.metrics["accuracy"] for one in judged[at - 2 : at + 1]) / 3 <= loss:
                return judged[at].time_s
        return math.inf

    @property
    def ends(self) -> list[float]:
        """What the model of each peer that judges was found to be at the end."""
        last = [self.of(int(peer))[-1].metrics for peer in sorted({one.peer for one in self.records})]
        return [one["accuracy"] for one in last if "accuracy" in one]


def ran(task: Task, groups: Sequence[Group], until_s: float | None = None, **settings: Any) -> Ran:
    torch.set_num_threads(1)
    wished = Settings(peers=sum(group.peers for group in groups), device="cpu", patience_s=1e4, **settings)
    return Ran(play(task, Scenario(settings=wished, groups=tuple(groups)), until_s)[1])


def equal(peers: int, link: str, step_s: float) -> list[Group]:
    return [Group(peers=peers, link=parse_link(link), step_s=step_s)]


def paces(until_s: float, step_s: float, slow: float, link: str = "1gbit,1ms", **settings: Any) -> list[int]:
    """Exchanges that each of sixteen peers has made; the last takes `slow` times as long for a step."""
    links = parse_link(link)
    groups = [Group(peers=15, link=links, step_s=step_s), Group(peers=1, link=links, step_s=slow * step_s)]
    run = ran(mlp_s(0, 0.1), groups, until_s, steps=10**9, evaluate_every=10**6, **settings)
    return [len(run.of(peer)) for peer in range(16)]


def steps_in_ring(until_s: float, slow: float) -> list[int]:
    """Local steps of 1 s that sixteen peers in a ring have taken, by their distance from the one that takes `slow`
    times as long for a step; on each side of it the one that has taken more."""
    link, taken = parse_link("10gbit,10us"), [0] * 16
    settings = Settings(
        peers=16, protocol="gossip", topology="ring", period="1", steps=10**9, device="cpu", patience_s=1e4
    )
    groups = (Group(peers=1, link=link, step_s=slow), Group(peers=15, link=link, step_s=1.0))
    world = World(mlp_s(0, 0.1), Scenario(settings=settings, groups=groups))

    def saw(life: str, event: object) -> None:
        if isinstance(event, Published):
            taken[int(peer_of(life))] = event.step

    world.log.judged = False
    world.log.observers.append(saw)
    with suppress(Hung):  # its time is over
        run_virtual(world.run(within_s=until_s), seed=0)
    return [max(taken[away], taken[-away]) for away in range(9)]


def digits() -> Task:
    """Handwritten digits on a perceptron 64-512-10, 38,410 parameters."""
    found = load_digits()
    inputs = torch.tensor(found.data, dtype=torch.float32) / 16
    labels = torch.tensor(found.target)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    tested, taught = order[:TESTED], order[TESTED:]

    def model() -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(64, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 10))

    def data(part: int, parts: int) -> Iterator[tuple[Tensor, Tensor]]:
        own, chance = taught[part::parts], torch.Generator().manual_seed(part)
        while True:
            for chosen in own[torch.randperm(len(own), generator=chance)].split(16):
                yield inputs[chosen], labels[chosen]

    def loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def evaluate(model: nn.Module) -> float:
        return float((model(inputs[tested]).argmax(-1) == labels[tested]).float().mean())

    def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.1)

    return Task(Path("digits"), model, data, loss, evaluate, optimizer)


def accuracy_and_bytes(steps: int, **settings: Any) -> tuple[float, int]:
    """The worst accuracy of a peer's own model at the end, and the bytes that a peer has sent: eight peers on a
    torus."""
    run = ran(
        digits(), equal(8, "100mbit,5ms", 0.01),
        protocol="gossip", topology="torus", period="4", steps=steps, evaluate_every=10**6, **settings,
    )  # fmt: skip
    return min(run.ends), sum(one.bytes_sent for one in run.of(0))
