"""Statistical queries in simulations: exact, whoever maps a partition and whoever is lost."""

import runpy
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from live import verb
from mapped import STEP_S, models, plain, run
from test_simulated_runs import TASKS
from tiers import one_in
from two_servers import TWO_SERVERS

from samovar.aggregation.consistency import parse_consistency
from samovar.peers.records.records import ExchangeRecord
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.members.attributes import Attributes
from samovar.protocols.members.view import Member, View
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.partitions import mappers
from samovar.sims.scenarios.scenario import Fault, Group, Kind

NORMAL, LOGISTIC = TASKS / "normal_equations.py", TASKS / "logistic_query.py"
OWN = {**TWO_SERVERS, "patience_s": 0.5}
DESCENT = {**OWN, "algorithm": "statistical_query:descent", "server_update": "sgd:2.0", "steps": 8}


def least_squares() -> torch.Tensor:
    inputs, targets = runpy.run_path(str(NORMAL))["every_row"]()
    return torch.from_numpy(np.linalg.lstsq(inputs.numpy(), targets.numpy(), rcond=None)[0])


def descended(steps: int) -> torch.Tensor:
    """Gradient descent on all rows on one machine, from the model with which every run begins."""
    inputs, targets = runpy.run_path(str(LOGISTIC))["every_row"]()
    theta = Trainer(load_task(LOGISTIC), seed=0, data_shard=0, data_shards=1, device=torch.device("cpu")).vector
    for _ in range(steps):
        theta = theta - 2.0 * inputs.T @ (torch.sigmoid(inputs @ theta) - targets) / len(inputs)
    return theta


def test_normal_equations_equal_the_least_squares_of_numpy() -> None:
    world, records = run(load_task(NORMAL), plain(**OWN, algorithm="statistical_query", steps=50))
    assert len(models(world)) == 3
    for model in models(world):
        assert float((model - least_squares()).abs().max()) < 1e-10
    told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer in ("0", "1", "2")]
    assert [one.step for one in told] == [1, 1, 1], "one step is all"
    assert all(one.metrics["mse"] < 1.2 for one in told)


@pytest.mark.parametrize("servers", [1, 3])
def test_descent_by_queries_equals_descent_on_one_machine(servers: int) -> None:
    world, records = run(load_task(LOGISTIC), plain(**{**DESCENT, "servers": servers}))
    assert len(models(world)) == 3
    assert all(float((model - descended(8)).abs().max()) < 1e-12 for model in models(world))
    told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert [one.step for one in told] == [*range(1, 9)]
    assert told[-1].loss < told[0].loss


@pytest.mark.parametrize(
    ("algorithm", "who"), one_in(3, product(["statistical_query", "statistical_query:descent"], [0, 1, 3, 4]))
)
def test_a_lost_peer_leaves_no_partition_out_and_counts_none_twice(algorithm: str, who: int) -> None:
    """Crashes in the first steps, while partitions are mapped and pushed, of a worker or of a server."""
    task = NORMAL if algorithm == "statistical_query" else LOGISTIC
    due = least_squares() if algorithm == "statistical_query" else descended(8)
    own = {**DESCENT, "algorithm": algorithm, "server_update": "add" if task == NORMAL else "sgd:2.0"}
    for at_s in (0.03, 0.06, 0.09, 0.12):
        crash = Fault(kind=Kind.CRASH, who=(who,), at_s=at_s)
        world, _ = run(load_task(task), replace(plain(**own), faults=(crash,)))
        assert len(models(world)) == (2 if who < 3 else 3), at_s
        close = 1e-10 if task == NORMAL else 1e-3  # of the step amid which it was lost some ranges may be newer
        assert all(float((model - due).abs().max()) < close for model in models(world)), at_s


def test_a_worker_that_joins_waits_for_a_partition_and_takes_a_lost_ones() -> None:
    scenario = plain(**{**DESCENT, "steps": 40})
    late = Group(peers=1, link=scenario.groups[0].link, step_s=STEP_S)
    crash = Fault(kind=Kind.CRASH, who=(1,), at_s=1.2)
    scenario = replace(scenario, groups=(*scenario.groups, late), arrivals=((5, 0.3),), faults=(crash,))
    world, records = run(load_task(LOGISTIC), scenario)
    mapped = {one.version: one.steps_per_s for one in records if isinstance(one, ExchangeRecord) and one.peer == "5"}
    before = [number for number, rate in mapped.items() if rate == 0]
    after = [number for number, rate in mapped.items() if rate > 0]
    assert before
    assert after
    assert max(before) < min(after)
    assert all(float((model - descended(40)).abs().max()) < 1e-3 for model in models(world))


def test_a_resumed_run_goes_on_from_the_sums_of_its_servers() -> None:
    scenario = plain(**{**DESCENT, "steps": 20, "checkpoint_every_s": 0.0})
    outage = Fault(kind=Kind.OUTAGE, who=(), at_s=0.9, for_s=1.0)
    world, records = run(load_task(LOGISTIC), replace(scenario, faults=(outage,)))
    assert len(models(world)) == 3
    steps = [one.version for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert steps[-1] == 20
    assert len(steps) < 30, "it did not begin anew"
    loss = load_task(LOGISTIC).loss
    assert loss is not None
    assert all(float((model - descended(20)).abs().max()) < 0.1 for model in models(world))


def view(*shards: int) -> View:
    members = tuple(
        Member(f"w{place}", f"w{place}", "", Attributes(data_shard=shard), 1) for place, shard in enumerate(shards)
    )
    return View(1, (*members, Member("s", "s", "", Attributes(role="server"), 1)), True)


def test_a_worker_maps_its_own_partition_and_those_of_missing_workers_are_shared_out() -> None:
    assert mappers(view(0, 1, 2), 3) == ("w0", "w1", "w2")
    assert mappers(view(0, 2), 4) == ("w0", "w0", "w1", "w1")
    assert mappers(view(0, 1, 1, 7), 3) == ("w0", "w1", "w2"), "w2 has none of its own"
    assert mappers(view(), 3) == ()


@pytest.mark.parametrize(
    ("task", "flags", "said"),
    [
        (NORMAL, ("--consistency", "ssp:2"), "--consistency"),
        (NORMAL, ("--server-update", "sgd:0.1"), "--server-update"),
        (NORMAL, ("--algorithm", "statistical_query:descent"), "query() returned 42 numbers"),
        (LOGISTIC, (), "query() returned 5 numbers, but must return the sums"),
        (LOGISTIC, ("--algorithm", "statistical_query:descent", "--server-update", "add"), "--server-update"),
        (TASKS / "union.py", (), "query(rows)"),
    ],
)
def test_what_a_query_cannot_do_is_said_in_one_line(task: Any, flags: tuple[str, ...], said: str) -> None:
    own = ("--protocol", "parameter-server", "--peers", "2", "--algorithm", "statistical_query")
    ended = verb("simulate", task, *own, *flags)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr
    assert [line.startswith("samovar: ") for line in ended.stderr.strip().splitlines()][-1]


@pytest.mark.parametrize("algorithm", ["statistical_query", "sandblaster"])
def test_a_model_with_batch_norm_is_refused_in_one_line(algorithm: str, tmp_path: Path) -> None:
    task = tmp_path / "normed.py"
    normed = "nn.Sequential(nn.BatchNorm1d(COEFFICIENTS), nn.Linear(COEFFICIENTS, 1)).double()"
    task.write_text(NORMAL.read_text("utf-8").replace("nn.Linear(COEFFICIENTS, 1, bias=False).double()", normed))
    own = ("--protocol", "parameter-server", "--peers", "2", "--algorithm", algorithm)
    ended = verb("simulate", task, *own)
    assert ended.exit_code == 2
    assert "trains no model with averaged buffers, such as those of batch norm" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    "text", ["statistical_query:newton", "statistical_query:normal:-1", "statistical_query:descent:1"]
)
def test_other_kinds_of_queries_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be"):
        parse_algorithm(text)


def test_a_step_sums_all_partitions_so_that_consistency_is_bsp() -> None:
    with pytest.raises(ValueError, match="consistency is bsp"):
        parse_algorithm("statistical_query").under(parse_consistency("async"))
