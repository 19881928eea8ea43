"""kill -9 of a server, at 20 points of a run of real processes, of which each value has two copies: no acknowledged
push is lost, none is applied twice, training ends, and the result names the server.

Pushes are of whole numbers, so that the values in the checkpoints that are left tell exactly what was applied.
"""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from live import Live
from tiers import soaked
from whole_numbers import SUMS, due

from samovar.peers.checkpoints.checkpoint import load

WORKERS, SERVERS, STEPS, RANGES = 2, 3, 200, 6
CONSISTENCIES = ("async", "ssp:2", "bsp")
OWN = ("--protocol", "parameter-server", "--algorithm", "downpour", "--server-update", "add", "--copies", 2)
SIZES = ("--peers", WORKERS, "--servers", SERVERS, "--ranges", RANGES, "--steps", STEPS, "--patience-s", 2)
QUIET = ("--run", "run", "--json", "--no-report")


def tensors_of(folder: Path, peer: int) -> dict[str, Any]:
    return dict(load(folder / f"run/checkpoint/peer-{peer}.safetensors").tensors)


@pytest.mark.parametrize("point", [soaked(point) if point != 8 else point for point in range(20)])
def test_kill_9_of_a_server_costs_no_acknowledged_push_and_the_result_names_it(point: int, tmp_path: Path) -> None:
    consistency, victim = CONSISTENCIES[point % len(CONSISTENCIES)], WORKERS + point // 3 % SERVERS
    run = Live(tmp_path, "train", SUMS, *OWN, *SIZES, "--consistency", consistency, *QUIET)
    at = STEPS * point // 20
    run.until(lambda: any(row.get("step", 0) > at for row in run.records("0")), f"step {at}")
    run.peers()[str(victim)].send_signal(signal.SIGKILL)
    ended = run.end()
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == [str(victim)]
    assert [peer["steps"] for peer in ended.result["peers"] if not peer["role"]] == [STEPS] * WORKERS
    expected, found = due(WORKERS, STEPS), dict[str, int]()
    for server in {*range(WORKERS, WORKERS + SERVERS)} - {victim}:
        values = {name: one for name, one in tensors_of(tmp_path, server).items() if name.endswith("/values")}
        found |= {name: len(one) for name, one in values.items()}
        assert values
        for name, one in values.items():
            assert one.tolist() == part_of(expected, name).tolist(), (server, name)
    assert sum(found.values()) == len(expected)
    models = [tensors_of(tmp_path, worker)["parameter_server/model"] for worker in range(WORKERS)]
    assert any(torch.equal(model, expected) for model in models), "that of the worker which ended last"


def part_of(vector: torch.Tensor, name: str) -> torch.Tensor:
    """The elements of the range whose values have that `name` in a checkpoint."""
    return vector.tensor_split(RANGES)[int(name.split("/")[1])]
