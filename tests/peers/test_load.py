"""`samovar.load`: the weights of a run in a model of the user's own, or the reason why they do not fit."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from from_python import folder_of_runs, trained  # noqa: F401
from notebook import DATA, IMPORTS, LOSS, TASK
from torch import nn

import samovar
from samovar.peers.checkpoints import checkpoint
from samovar.peers.records.elsewhere import Elsewhere
from samovar.peers.records.result import Lost
from samovar.peers.records.run import RESULT_FILE
from samovar.peers.task.tensors import tensors_of


class Tied(nn.Module):
    def __init__(self, *, tied: bool = True, width: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, width)
        self.norm = nn.BatchNorm1d(width)
        self.out = nn.Linear(width, 5, bias=False)
        self.frozen = nn.Parameter(torch.arange(3.0), requires_grad=False)
        if tied:
            self.out.weight = self.embed.weight


def saved(folder: Path, *models: nn.Module, **numbers: object) -> Path:
    """A run folder with the checkpoints of peers that have these models, of which the last came farthest. `numbers`:
    what else the checkpoints tell."""
    for index, model in enumerate(models):
        tensors = {f"model/{name}": tensor for name, tensor in tensors_of(model).items()}
        path = folder / f"checkpoint/peer-{index}.safetensors"
        checkpoint.save(path, checkpoint.Snapshot({**tensors, "losses": torch.zeros(2)}, {"steps": index, **numbers}))
    return folder


def test_the_tied_and_frozen_weights_of_a_run_are_loaded_too(here: Path) -> None:
    (here / "line.py").write_text(
        IMPORTS + DATA + LOSS + "def model():\n"
        "    net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))\n"
        "    net[2].weight = net[0].weight\n    net[0].bias.requires_grad_(False)\n    return net\n"
    )  # fmt: skip
    result, loaded = trained("line.py"), []
    for peer in (None, 0, "1"):
        net = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        net[2].weight = net[0].weight
        assert samovar.load(net, result if peer is None else result.run, peer) is net
        loaded.append(net.state_dict())
    averaged = [name for name, tensor in loaded[0].items() if tensor.is_floating_point()]
    assert len(averaged) == 8
    for name in averaged:
        assert torch.equal(loaded[0][name], loaded[1][name])
        assert torch.equal(loaded[1][name], loaded[2][name])


def test_the_best_model_is_loaded_where_the_run_has_one(here: Path) -> None:
    last, best, mine = Tied(), Tied(), Tied()
    saved(here / "run", last)
    with pytest.raises(samovar.CheckpointError, match=r"^run: no best model is here: its task names no metric"):
        samovar.load(mine, "run", best=True)
    saved(here / "other", best)
    (here / "other/checkpoint/peer-0.safetensors").rename(here / "run/checkpoint/best.safetensors")
    assert torch.equal(samovar.load(mine, "run", best=True).embed.weight, best.embed.weight)
    assert torch.equal(samovar.load(mine, "run").embed.weight, last.embed.weight)
    for other in ({"peer": 0}, {"mean": True}):
        with pytest.raises(ValueError, match="leave out peer and mean"):
            samovar.load(mine, "run", best=True, **other)


def test_the_peer_that_came_farthest_is_loaded_unless_another_is_named(here: Path) -> None:
    first, last, mine = Tied(), Tied(), Tied()
    saved(here / "run", first, last)
    assert torch.equal(samovar.load(mine, "run").embed.weight, last.embed.weight)
    assert mine.out.weight is mine.embed.weight
    assert torch.equal(samovar.load(mine, "run", 0).embed.weight, first.embed.weight)


def test_the_mean_of_all_peers_models_is_loaded_where_each_has_its_own(here: Path) -> None:
    models, mine = [Tied(), Tied(), Tied()], Tied()
    models[2].norm.num_batches_tracked += 7
    saved(here / "run", *models)
    samovar.load(mine, "run", mean=True)
    assert torch.allclose(mine.embed.weight, torch.stack([one.embed.weight for one in models]).mean(0))
    assert mine.out.weight is mine.embed.weight
    assert int(mine.norm.num_batches_tracked) == 7, "a count is no mean"
    saved(here / "odd", Tied(), Tied(width=6))
    with pytest.raises(samovar.CheckpointError, match=r"its model is another than that of .*peer-1"):
        samovar.load(Tied(width=6), "odd", mean=True)


@pytest.mark.parametrize("by", ["folder", "result"])
def test_the_mean_of_all_peers_models_is_without_those_of_lost_peers_that_are_not_back(here: Path, by: str) -> None:
    models, mine = [Tied(), Tied(), Tied()], Tied()
    saved(here / "run", *models, own_model=True)
    lost = [Lost(peer="2", when=1.0, why="killed"), Lost(peer="1", when=1.0, why="killed", back=True)]

    def mean_of(*lost: Lost) -> torch.Tensor:
        result = samovar.Result(loss=1.0, wall_s=1.0, exchanges=3, run="run", lost=lost)
        (here / "run" / RESULT_FILE).write_text(result.to_json(), "utf-8")
        return samovar.load(mine, result if by == "result" else "run", mean=True).embed.weight.detach().clone()

    weights = [one.embed.weight.detach() for one in models]
    assert torch.allclose(mean_of(*lost), (weights[0] + weights[1]) / 2)
    samovar.load(mine, "run", 2, mean=True)
    assert torch.allclose(mine.embed.weight, (weights[0] + weights[1]) / 2), "its counters alone are those of peer 2"
    everybody = [Lost(peer=str(peer), when=1.0, why="killed") for peer in range(3)]
    assert torch.allclose(mean_of(*everybody), sum(weights) / 3)


def test_a_mean_without_models_that_are_on_other_machines_says_so_until_they_are_copied(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    models, mine = [Tied(), Tied()], Tied()
    saved(here / "one", models[0], own_model=True)
    seen = Elsewhere(peer="1", exchanges=3, joined_s=0.0)
    ends: list[dict[str, Any]] = [{}, {"peer": "2"}, {"peer": "3", "role": "server"}, {"peer": "4", "gone": "left"}]
    others = [dataclasses.replace(seen, **end) for end in ends]
    result = samovar.Result(loss=1.0, wall_s=1.0, exchanges=3, run="one", elsewhere=tuple(others))
    samovar.load(mine, result, mean=True)
    told = "samovar: one: a mean without the models of 1, 2: copy their checkpoints from there to one/checkpoint\n"
    assert capsys.readouterr().err == told
    copied = saved(here / "two", *models, own_model=True) / "checkpoint/peer-1.safetensors"
    for name in "12":
        shutil.copy(copied, here / f"one/checkpoint/peer-{name}.safetensors")
    samovar.load(mine, result, mean=True)
    assert capsys.readouterr().err == ""
    weights = [one.embed.weight.detach() for one in models]
    assert torch.allclose(mine.embed.weight, (weights[0] + 2 * weights[1]) / 3)


def test_a_run_to_load_is_a_folder_or_a_result(here: Path) -> None:
    with pytest.raises(TypeError, match=r"^load\(\) takes a run folder or the result of a run, got 3$"):
        samovar.load(Tied(), 3)  # type: ignore[arg-type]


def test_of_peers_with_models_of_their_own_one_model_must_be_chosen(here: Path) -> None:
    models, mine = [Tied(), Tied()], Tied()
    saved(here / "run", *models, own_model=True)
    choices = "load the mean of all with mean=True, or that of one with peer=, of 0, 1"
    with pytest.raises(samovar.CheckpointError, match=f"^run: each peer of this run has a model of its own: {choices}"):
        samovar.load(mine, "run")
    with pytest.raises(samovar.CheckpointError, match="run: peer 2 left no weights here, but these did: 0, 1"):
        samovar.load(mine, "run", 2)
    assert torch.equal(samovar.load(mine, "run", 0).embed.weight, models[0].embed.weight)
    mean = torch.stack([one.embed.weight for one in models]).mean(0)
    assert torch.allclose(samovar.load(mine, "run", mean=True).embed.weight, mean)
    alone = saved(here / "alone", models[1], own_model=True)
    assert torch.equal(samovar.load(mine, alone).embed.weight, models[1].embed.weight), "as in a newcomer's folder"


def test_after_a_parameter_server_the_models_are_those_of_the_workers_alone(here: Path) -> None:
    (here / "line.py").write_text(TASK)
    result = trained("line.py", protocol="parameter_server", servers=1, period=None)
    assert (result.folder / "checkpoint/peer-2.safetensors").exists(), "that of the server"
    one, mean = (samovar.load(nn.Linear(2, 1), result, mean=mean).weight for mean in (False, True))
    assert torch.allclose(one, mean)
    which = "0, 1; without peer= the one that took the most steps is loaded"
    with pytest.raises(samovar.CheckpointError, match=rf"peer 2 left no weights here, but these did: {which}$"):
        samovar.load(nn.Linear(2, 1), result, 2)


def test_the_checkpoints_of_a_gossip_tell_that_each_model_is_a_peers_own(here: Path) -> None:
    (here / "line.py").write_text(TASK)
    for protocol, own in (("gossip", True), ("allreduce", False)):
        result = trained("line.py", protocol=protocol)
        assert checkpoint.load(result.folder / "checkpoint/peer-1.safetensors").numbers["own_model"] is own


def test_a_function_that_makes_the_model_is_not_taken_for_one(here: Path) -> None:
    with pytest.raises(TypeError, match=r"takes an nn\.Module, got <class .*Tied'>: call it"):
        samovar.load(Tied, saved(here / "run", Tied()))  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("model", "folder", "peer", "said"),
    [
        (
            Tied(tied=False),
            "run",
            None,
            "this is not the run's model: the run has no 'out.weight' (if it is tied",
        ),
        (Tied(width=6), "run", None, "the run's 'embed.weight' has the shape (5, 4), and this one (5, 6)"),
        (Tied().double(), "run", None, "is torch.float32, and this one torch.float64"),
        (nn.Embedding(5, 4), "run", None, "the run has no 'weight'"),
        (nn.Module(), "run", None, "this one has no '"),
        (Tied(), "nowhere", None, "nowhere: there is no such run folder"),
        (Tied(), "empty", None, "empty: no peer left its weights here; scripts and simulations leave none"),
        (
            Tied(),
            "served",
            None,
            "served: the checkpoints here are of servers, which hold parts of the model: give the",
        ),
        (Tied(), "run", 7, "peer 7 left no weights here, but these did: 0"),
        (Tied(), "damaged", None, "cannot load checkpoint damaged/checkpoint/peer-0.safetensors"),
    ],
)
def test_a_model_that_does_not_fit_is_left_as_it_was_and_the_difference_named(
    here: Path, model: nn.Module, folder: str, peer: int | None, said: str
) -> None:
    saved(here / "run", Tied())
    (here / "empty").mkdir()
    checkpoint.save(
        here / "served/checkpoint/peer-2.safetensors", checkpoint.Snapshot({"0": torch.zeros(4)}, {"version": 3})
    )
    file = saved(here / "damaged", Tied()) / "checkpoint/peer-0.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(samovar.CheckpointError, match=re.escape(said)) as error:
        samovar.load(model, folder, peer)
    assert "\n" not in str(error.value)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
