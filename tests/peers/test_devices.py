"""Where a peer computes: each GPU of a machine has its turn, and what is drawn there comes from the seed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from live import ROOT

from samovar.peers.launch import process
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.rng import Chance
from samovar.peers.task.task import TaskError, load_task
from samovar.peers.training import devices
from samovar.peers.training.devices import pick_device, take_seat
from samovar.peers.training.trainer import Trainer

UNION = ROOT / "tests/support/tasks/union.py"


class FakeCuda:
    """As PyTorch's: nobody has a generator before it is initialised, which to count devices does not do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self._monkeypatch, self._count = monkeypatch, count
        monkeypatch.setattr(Chance, "_owner", None)  # what is drawn afterwards is of no GPU
        for name, does in {
            "is_available": lambda: True,
            "device_count": lambda: count,
            "default_generators": (),
            "init": self._init,
            "get_rng_state": lambda device: torch.cuda.default_generators[device.index].get_state(),
            "set_rng_state": lambda state, device: torch.cuda.default_generators[device.index].set_state(state),
        }.items():
            monkeypatch.setattr(torch.cuda, name, does)

    def _init(self) -> None:
        if not torch.cuda.default_generators:
            made = tuple(torch.Generator() for _ in range(self._count))
            self._monkeypatch.setattr(torch.cuda, "default_generators", made)


def drawn(index: int) -> float:
    return torch.rand(1, generator=torch.cuda.default_generators[index]).item()


def test_chance_begins_from_its_seed_on_an_unused_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeCuda(monkeypatch, 2)
    Chance(7, torch.device("cuda:1")).take()
    first = drawn(1)
    one, other = Chance(7, torch.device("cuda:1")), Chance(7, torch.device("cuda:1"))
    one.take()
    assert drawn(1) == first
    second = drawn(1)
    other.take()
    assert drawn(1) == first, "another one's draws are no matter"
    Chance.from_plain(*one.to_plain(), torch.device("cuda:1")).take()
    assert drawn(1) != second
    other.take()
    assert drawn(1) == second


def test_a_task_trains_on_a_real_gpu() -> None:
    """And a checkpoint of it goes on to the same bits. Skipped where there is none."""
    if not torch.cuda.is_available():
        pytest.skip("this machine has no GPU")
    task, device = load_task(UNION), pick_device("auto", 0)
    assert device.type == "cuda"
    straight, stopped, resumed = (Trainer(task, seed=3, data_shard=0, data_shards=2, device=device) for _ in range(3))
    straight.train(6)
    stopped.train(3)
    resumed.restore(stopped.snapshot())
    resumed.train(3)
    assert torch.equal(straight.update().vector, resumed.update().vector)


def test_an_unknown_device_is_refused() -> None:
    if torch.cuda.device_count() < 9:
        with pytest.raises(TaskError, match="cuda:8"):
            pick_device("cuda:8", 0)
    assert pick_device("cpu,auto", 0) == torch.device("cpu")


@pytest.fixture
def device_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int | None], torch.device]]:
    """The device of the next peer, of a launcher's number or (None) come by itself, on a machine of two GPUs."""
    monkeypatch.setattr(devices, "_KEPT", [])
    monkeypatch.setattr(os, "getuid", lambda: f"test-{os.getpid()}")
    made = SimpleNamespace(
        hooks=SimpleNamespace(setup=lambda name, folder: None), copy=SimpleNamespace(resting=SimpleNamespace())
    )
    monkeypatch.setattr(process, "Trainer", lambda task, *, device, **_: SimpleNamespace(**vars(made), device=device))
    FakeCuda(monkeypatch, 2)

    def build(part: int | None) -> Any:
        opening = SimpleNamespace(
            orders=SimpleNamespace(task=str(UNION), data_shard=part or 0, name="0", folder="."),
            control=None if part is None else object(),
        )
        return process._build_trainer(Settings(), opening).device  # type: ignore[arg-type]

    yield build
    for seat in devices._KEPT:
        seat.close()


def test_peers_without_a_launcher_share_a_machines_gpus(device_of: Callable[[int | None], torch.device]) -> None:
    assert [device_of(None).index for _ in range(4)] == [0, 1, 0, 1]


def test_a_peer_without_a_launcher_never_changes_the_gpus_of_launched_peers(
    device_of: Callable[[int | None], torch.device],
) -> None:
    assert [device_of(0).index, device_of(None).index] == [0, 1]
    assert device_of(1).index == 1, "those go by their number, whoever is there"


def test_the_seat_of_a_process_that_ended_is_free(device_of: Callable[[int | None], torch.device]) -> None:
    assert [take_seat(None) for _ in range(3)] == [0, 1, 2]
    devices._KEPT.pop(1).close()
    assert [take_seat(None) for _ in range(2)] == [1, 3]
