"""The best model of a run is kept beside the last."""

from __future__ import annotations

import fcntl
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from live import ROOT

from samovar.peers.checkpoints.best import BestModel, Kept, best_path, kept_best
from samovar.peers.checkpoints.checkpoint import Snapshot, load, save
from samovar.peers.checkpoints.file import read_numbers
from samovar.peers.records.metrics import Scale
from samovar.peers.task.headline import Headline, headline_of
from samovar.peers.task.task import load_task
from samovar.peers.training.compute import ThreadCompute
from samovar.peers.training.task_replica import TaskReplica
from samovar.peers.training.trainer import Trainer

JUDGED = ROOT / "tests/support/tasks/judged.py"
LOWER, HIGHER = Scale("lower"), Scale("higher")


def best_in(folder: Path, headline: Headline, peer: int = 0) -> BestModel:
    path = best_path(folder)
    own = path.with_name(f"peer-{peer}.best")
    return BestModel(path, headline.name, headline.better, own, lambda snapshot: save(own, snapshot))


def offer(best: BestModel, value: float, version: int = 1) -> None:
    """What a peer does with its evaluated model."""
    if best.improved({"m": value}):
        best.write(Snapshot({"model/w": torch.full((100_000,), value)}, {}), {"m": value}, version)


@pytest.mark.parametrize(
    ("scale", "values", "kept"), [(HIGHER, [0.2, 0.9, 0.3, 0.95], [0, 1, 3]), (LOWER, [9.0, 4.0, 4.0, 3.5], [0, 1, 3])]
)
def test_a_model_is_kept_where_its_headline_is_better(
    tmp_path: Path, scale: Scale, values: list[float], kept: list[int]
) -> None:
    written = []
    for version, value in enumerate(values):
        best = best_in(tmp_path, Headline("m", scale))  # another peer each time, as after a change of coordinator
        if best.improved({"m": value, "other": 1.0}):
            best.write(Snapshot({"model/w": torch.tensor([value])}, {}), {"m": value, "odd": math.nan}, version)
            written.append(version)
    assert written == kept
    assert kept_best(best_path(tmp_path)) == Kept("m", values[kept[-1]], kept[-1])
    snapshot = load(best_path(tmp_path))
    assert snapshot.tensors["model/w"].item() == pytest.approx(values[kept[-1]])
    assert snapshot.numbers == read_numbers(best_path(tmp_path))
    assert snapshot.numbers["metrics"] == {"m": values[kept[-1]]}


@pytest.mark.parametrize(("scale", "better", "worse"), [(HIGHER, 0.9, 0.8), (LOWER, 2.0, 3.0)])
def test_a_model_that_is_written_later_is_not_kept_where_a_better_one_was_written_meanwhile(
    tmp_path: Path, scale: Scale, better: float, worse: float
) -> None:
    first, second = (best_in(tmp_path, Headline("m", scale), peer) for peer in (0, 1))
    assert first.improved({"m": better})
    assert second.improved({"m": worse})
    first.write(Snapshot({}, {}), {"m": better}, 3)
    second.write(Snapshot({}, {}), {"m": worse}, 4)
    assert kept_best(best_path(tmp_path)) == Kept("m", better, 3)
    assert [file.name for file in best_path(tmp_path).parent.iterdir()] == [best_path(tmp_path).name]


def test_no_other_peer_is_let_between_the_last_look_at_the_kept_model_and_its_replacement(tmp_path: Path) -> None:
    offer(best_in(tmp_path, Headline("m", HIGHER)), 0.5)
    path, locked = best_path(tmp_path), list[bool]()

    def better(value: float, than: float) -> bool:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            locked.append(False)
        except BlockingIOError:
            locked.append(True)
        finally:
            os.close(folder)
        return value > than

    own = path.with_name("own")
    offer(BestModel(path, "m", better, own, lambda snapshot: save(own, snapshot)), 0.6, 2)
    assert locked == [False, True]
    assert kept_best(path) == Kept("m", 0.6, 2)


def test_a_peer_s_own_model_is_kept_with_its_name(tmp_path: Path) -> None:
    best = best_in(tmp_path, Headline("m", HIGHER), 2)
    best.write(Snapshot({"model/w": torch.zeros(1)}, {}), {"m": 0.5}, 7, "2")
    assert kept_best(best_path(tmp_path)) == Kept("m", 0.5, 7, "2")
    best.write(Snapshot({"model/w": torch.zeros(1)}, {}), {"m": 0.6}, 8)
    assert kept_best(best_path(tmp_path)) == Kept("m", 0.6, 8), "the model of all"


def test_of_peers_that_write_at_once_the_best_model_is_kept_whole(tmp_path: Path) -> None:
    values = [[0.01 * (7 * turn + peer) for turn in range(12)] for peer in range(6)]

    def peer(index: int) -> None:
        best = best_in(tmp_path, Headline("m", HIGHER), index)
        for value in values[index]:
            offer(best, value)

    with ThreadPoolExecutor(len(values)) as pool:
        list(pool.map(peer, range(len(values))))
    kept = load(best_path(tmp_path))
    assert kept.numbers["value"] == max(map(max, values))
    assert kept.tensors["model/w"][0].item() == pytest.approx(kept.numbers["value"])


@pytest.mark.parametrize("metrics", [{}, {"other": 1.0}, {"m": math.nan}, {"m": -math.inf}])
def test_a_model_without_a_finite_headline_is_not_the_best(tmp_path: Path, metrics: dict[str, float]) -> None:
    assert not best_in(tmp_path, Headline("m", HIGHER)).improved(metrics)


def test_a_file_that_tells_nothing_is_written_anew(tmp_path: Path) -> None:
    path = best_path(tmp_path)
    path.parent.mkdir()
    best = best_in(tmp_path, Headline("m", HIGHER))
    for content in (b"", b"no checkpoint", b"\xff" * 500):
        path.write_bytes(content)
        assert kept_best(path) is None
        assert best.improved({"m": 0.1})
    save(path, Snapshot({}, {"metric": "another", "value": 0.9, "version": 3}))
    assert best.improved({"m": 0.1}), "the headline is another one than before"


async def test_the_file_has_the_names_of_a_checkpoints_model_and_training_goes_on_as_it_was(tmp_path: Path) -> None:
    task = load_task(JUDGED)
    trainer = Trainer(task, seed=0, data_shard=0, data_shards=2, device=torch.device("cpu"))
    trainer.train(3)
    now, other = trainer.vector, trainer.vector + 1
    compute, written = ThreadCompute(), list[Snapshot]()

    def write(model: Snapshot) -> None:
        written.append(Snapshot({name: tensor.clone() for name, tensor in model.tensors.items()}, {}))

    await TaskReplica(trainer, compute).write_model(other, write)
    compute.close()
    assert torch.equal(trainer.vector, now)
    names = {name for name in trainer.snapshot().tensors if name.startswith("model/")}
    assert written[0].tensors.keys() == names
    assert torch.equal(torch.cat([tensor.flatten() for tensor in written[0].tensors.values()]), other)


def test_only_a_task_that_evaluates_has_a_headline() -> None:
    assert headline_of(load_task(JUDGED)) == Headline("accuracy", Scale("higher", "%"))
    assert headline_of(load_task(JUDGED.with_name("union.py"))) is None
