"""Training loops of somebody's own for tests, and how they run with a peer each."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT
from torch import Tensor, nn

import samovar
from samovar.peers.launch.script_target import ScriptTarget
from samovar.peers.records.run import read_run
from samovar.peers.script import join as script_join
from samovar.peers.script.loop_thread import Background
from samovar.peers.task.rng import derive
from samovar.peers.task.task import Task, load_task
from samovar.protocols.members.attributes import SERVER

HERE = "tcp://127.0.0.1:0"
STEPS = 10
RECIPES = ROOT / "tests/support/recipes"


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    yield
    assert threads() == []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "samovar"]


def begin(folder: Path, **settings: Any) -> samovar.Run:
    return samovar.join(run=folder, listen=HERE, report=False, **settings)


def together(folder: Path, loops: list[Callable[[samovar.Run], Any]], **settings: Any) -> list[Any]:
    """Run each loop with a peer of its own; all are of one run, and so are its servers."""
    founder = begin(folder / "0", peers=len(loops), **settings)
    own = {name: settings[name] for name in ("protocol", "site") if name in settings}
    servers = settings.get("servers", 0)
    with ThreadPoolExecutor(len(loops) + servers) as pool:
        serving = [pool.submit(serve, folder / f"server-{index}", founder, **own) for index in range(servers)]
        others = [
            pool.submit(lambda index=index, loop=loop: loop(joined(folder / str(index), founder, **own)))
            for index, loop in enumerate(loops[1:], 1)
        ]
        found = [loops[0](founder), *(other.result() for other in others)]
        assert [server.result() for server in serving] == [None] * servers
        return found


def joined(folder: Path, founder: samovar.Run, **own: Any) -> samovar.Run:
    """`own`: the settings that each peer says for itself."""
    assert founder.invitation is not None
    return samovar.join(**founder.invitation, **own, run=folder, listen=HERE, name=folder.name)


def serve(folder: Path, founder: samovar.Run, **own: Any) -> None:
    """One more server, which `samovar serve ADDRESS SCRIPT` has the script join. Its process ends in `wrap`, when the
    run is over."""
    way = {"invite": None, "peer_key": None, **(founder.invitation or {})}
    settings = {**own, "run": str(folder), "listen": HERE, "report": False}
    target = ScriptTarget(way["address"], way["invite"], way["peer_key"], folder.name, settings, role=SERVER)
    model = network()
    with contextlib.suppress(SystemExit):
        script_join._run(Background(), target).wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)


def rounds(folder: Path) -> list[int]:
    return [record.version for record in read_run(folder).exchanges]


class Bare:
    """A run that does nothing: the loop without Samovar."""

    part, parts = 0, 1

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        return optimizer

    def loss(self, loss: Tensor) -> None:
        pass

    def leave(self) -> None:
        pass


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


def batch_loss(model: nn.Module, step: int) -> Tensor:
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
    return nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True).sin())


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights, then the optimizer's own state."""
    state = [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]
    return [*(p.detach().clone() for p in model.parameters()), *(v for v in state if isinstance(v, Tensor))]


def scheduled(run: Any) -> list[Tensor]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    assert run.wrap(optimizer, model) is optimizer
    after = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = batch_loss(model, step)
        loss.backward()
        run.loss(loss)
        optimizer.step()
        before.step()
        after.step()
    run.leave()
    return [*everything(model, optimizer), torch.tensor(optimizer.param_groups[0]["lr"])]


def steps_of(recipe: str) -> int:
    """Local steps in the loop of a recipe."""
    return {"accumulation": 20, "lora": 8}.get(recipe, 40)


def weights(model: nn.Module) -> Tensor:
    """The parameters that are trained, as one vector."""
    return nn.utils.parameters_to_vector(one for one in model.parameters() if one.requires_grad).detach()


def first_model(task: Task) -> nn.Module:
    """The model with which every peer of seed 0 begins."""
    torch.manual_seed(derive(0, "model"))
    return task.model()


def union(run: samovar.Run) -> Tensor:
    task = load_task(ROOT / "tests/support/tasks/union.py")
    model = network()
    optimizer = run.wrap(task.optimizer(model.parameters()), model)
    for batch in task.data(run.part, run.parts):
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        optimizer.step()
    run.leave()
    return nn.utils.parameters_to_vector(model.parameters()).detach()
