"""What Samovar costs a single peer: its training loop against the same loop in bare PyTorch.

Both do the same local steps on the same data from the same weights, in one process, in turn; both must end with the
same weights, bit for bit. The peer is a whole one, with an open, encrypted ZeroMQ endpoint, rounds and records.

    python benchmarks/overhead.py [--quick] [--json FILE]
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from common import arguments, interleaved, missed, rows_of, show
from torch import nn

from samovar.peers.peer import Peer
from samovar.peers.place import Place
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.rng import derive
from samovar.peers.task.task import Task
from samovar.peers.training.compute import ThreadCompute
from samovar.peers.training.loop import Training
from samovar.peers.training.stop import Stop
from samovar.peers.training.task_replica import TaskReplica
from samovar.peers.training.trainer import Trainer
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

CPU = torch.device("cpu")


def task_of(model: Callable[[], nn.Module], shape: tuple[int, ...]) -> Task:
    """`shape`: of a batch."""
    generator = torch.Generator().manual_seed(1)
    batches = [
        (torch.randn(shape, generator=generator), torch.randint(10, shape[:1], generator=generator)) for _ in range(20)
    ]

    def loss(model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return nn.functional.cross_entropy(model(batch[0]), batch[1])

    def optimizer(parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=0.01)

    return Task(Path("benchmark.py"), model, lambda part, parts: batches, loss, None, optimizer)


def perceptron(width: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


def convolutional() -> nn.Module:
    """The size of a first network for Fashion-MNIST."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 49, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip


WORKS: list[tuple[str, Callable[[], nn.Module], tuple[int, ...], int]] = [
    ("convolutional network, batch 64", convolutional, (64, 1, 28, 28), 160),
    ("perceptron 512 wide, batch 64", perceptron(512), (64, 64), 800),
    ("perceptron 64 wide, batch 32", perceptron(64), (32, 64), 3200),
]
"""What, the model, a batch, how many local steps; a step takes about 10, 2 and 0.4 ms."""


Loop = Callable[[Task, int], tuple[float, torch.Tensor]]
"""Takes so many local steps: the seconds that they took, and the parameters at their end."""


def bare(task: Task, steps: int) -> tuple[float, torch.Tensor]:
    torch.manual_seed(derive(0, "model"))
    model = task.model()
    optimizer = task.optimizer_of(model)
    batches = list(task.data(0, 1))
    began = time.perf_counter()
    for step in range(steps):
        optimizer.zero_grad()
        loss = task.loss(model, batches[step % len(batches)])
        loss.backward()
        optimizer.step()
    return time.perf_counter() - began, torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def under_samovar(task: Task, steps: int) -> tuple[float, torch.Tensor]:
    async def run() -> tuple[float, torch.Tensor]:
        settings = Settings(peers=1, period="16", steps=steps)
        keys = KeyPair.new()
        endpoint = Endpoint(ZeroMQTransport(keys, listen="tcp://127.0.0.1:0"), patience_s=5, rng=random.Random(0))
        await endpoint.open()
        trainer = Trainer(task, seed=0, data_shard=0, data_shards=1, device=CPU)
        peer = Peer(endpoint, settings, Place(name="0"), trainer.facts(), steps=steps)
        contact: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        contact.set_result(None)
        compute = ThreadCompute()
        began = time.perf_counter()
        await Training(peer, TaskReplica(trainer, compute), Stop()).run(contact)
        seconds = time.perf_counter() - began
        peer.close()
        compute.close()
        return seconds, trainer.vector

    return asyncio.run(run())


def main() -> int:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    rows = []
    for what, model, shape, steps in WORKS[: 1 if options.quick else 3]:
        task = task_of(model, shape)
        ends: dict[str, torch.Tensor] = {}

        def timed(
            name: str, run: Loop, task: Task = task, steps: int = steps, ends: dict[str, torch.Tensor] = ends
        ) -> float:
            seconds, ends[name] = run(task, steps)
            return seconds

        systems = {
            "samovar, 1 peer": lambda: timed("samovar", under_samovar),
            "bare PyTorch": lambda: timed("bare", bare),
        }
        times = interleaved(systems, 5 if options.quick else 9)
        assert torch.equal(ends["samovar"], ends["bare"]), "the two loops did not do the same"
        rows += rows_of(f"{steps} steps, {what}", times, "samovar, 1 peer", "bare PyTorch", 0.95)
    show(rows, options.json)
    return missed(rows)


if __name__ == "__main__":
    sys.exit(main())
