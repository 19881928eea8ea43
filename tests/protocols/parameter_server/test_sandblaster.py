"""Sandblaster L-BFGS in simulations: it finds scipy's minimum, whoever is slow or lost."""

import functools
import runpy
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from live import verb
from mapped import STEP_S, models, plain, run
from scipy.optimize import minimize
from test_simulated_runs import TASKS
from tiers import one_in, soaked
from torch import Tensor
from two_servers import TWO_SERVERS

from samovar.aggregation.lbfgs import Search, decide
from samovar.aggregation.server.lbfgs import KeepBasis, gram, obeyed
from samovar.peers.records.records import ExchangeRecord
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.members.view import View
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.events import Acknowledged
from samovar.protocols.parameter_server.exchanges import Exchanges
from samovar.protocols.parameter_server.tenure import workers_of
from samovar.sims.scenarios.scenario import Fault, Group, Kind
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.event_log import Gone

TASK = TASKS / "logistic_loss.py"
ROWS = 128
OWN = {**TWO_SERVERS, "algorithm": "sandblaster:4", "patience_s": 0.5, "steps": 16}


def at(theta: Tensor) -> tuple[float, Tensor]:
    """The mean loss of all rows, and its gradient."""
    inputs, targets = runpy.run_path(str(TASK))["every_row"]()
    z = inputs @ theta
    loss = torch.nn.functional.binary_cross_entropy_with_logits(z, targets) + 5e-4 * theta @ theta
    return float(loss), inputs.T @ (torch.sigmoid(z) - targets) / ROWS + 1e-3 * theta


@functools.cache
def alone(steps: int) -> Tensor:
    """The point of a single machine after so many steps, from the model with which every run begins."""
    function, search = KeepBasis(), Search()
    values = Trainer(load_task(TASK), seed=0, data_shard=0, data_shards=1, device=torch.device("cpu")).vector
    state = function.start(values)
    for step in range(1, steps + 1):
        loss, gradient = at(values)
        values, state = function.step(values, ROWS * gradient, state)
        order = decide(gram(state), ROWS * loss, search, last=step == steps)
        (values, state), search = obeyed(values, state, order), order.search
    return values


def test_it_reaches_the_loss_of_scipys_l_bfgs() -> None:
    def of(theta: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        loss, gradient = at(torch.from_numpy(theta))
        return loss, gradient.numpy()

    found = minimize(of, np.zeros(6), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
    world, _ = run(load_task(TASK), plain(**{**OWN, "steps": 30}))
    assert len(models(world)) == 3
    assert all(at(model)[0] == pytest.approx(found.fun, abs=1e-6) for model in models(world))


@pytest.mark.parametrize("servers", [soaked(1), 3])
def test_its_iterates_are_those_of_a_single_machine_though_portions_are_mapped_twice(servers: int) -> None:
    """The others map the last portions of a slower worker again."""
    scenario = plain(**{**OWN, "servers": servers})
    workers, *others = scenario.groups
    slower = replace(workers, peers=1, step_s=1.5 * STEP_S)
    world, records = run(load_task(TASK), replace(scenario, groups=(replace(workers, peers=2), slower, *others)))
    pushes = [entry.event for entry in world.log.entries if isinstance(entry.event, Acknowledged)]
    assert len(models(world)) == 3
    assert len({(push.range, push.worker, push.seq) for push in pushes}) < len(pushes), "some were mapped twice"
    assert all(float((model - alone(16)).abs().max()) < 1e-8 for model in models(world))
    told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert [one.step for one in told] == [*range(1, 17)]


@pytest.mark.parametrize(("at_s", "who"), one_in(4, product([0.31, 1.07], [0, 4, 1, 3, 5])))
def test_a_lost_worker_or_server_changes_no_step(at_s: float, who: int) -> None:
    """Also the server that coordinates, whatever it does then: another one goes on from the last order."""
    crash = Fault(kind=Kind.CRASH, who=(who,), at_s=at_s)
    world, _ = run(load_task(TASK), replace(plain(**{**OWN, "servers": 3}), faults=(crash,)))
    assert len(models(world)) == (2 if who < 3 else 3)
    assert all(float((model - alone(16)).abs().max()) < 1e-8 for model in models(world))


def test_a_worker_that_pushes_to_the_first_range_alone_holds_up_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first range then has all portions, and lets none be mapped a second time before somebody has waited."""
    by_server = Exchanges.by_server

    def of_the_first(self: Exchanges, view: View, left: set[int], *, tail: bool) -> dict[str, list[int]]:
        if not tail and self._channel.endpoint.id == workers_of(view)[-1]:
            left &= {0}
        return by_server(self, view, left, tail=tail)

    monkeypatch.setattr(Exchanges, "by_server", of_the_first)
    world, _ = run(load_task(TASK), plain(**{**OWN, "steps": 4}))
    assert len(models(world)) == 3
    assert all(float((model - alone(4)).abs().max()) < 1e-8 for model in models(world))


def test_workers_are_told_when_the_last_copy_of_a_range_is_gone() -> None:
    crash = Fault(kind=Kind.CRASH, who=(4,), at_s=0.6)
    world, _ = run(load_task(TASK), replace(plain(**{**OWN, "servers": 3, "copies": 1}), faults=(crash,)))
    errors = {entry.life: entry.event.error for entry in world.log.entries if isinstance(entry.event, Gone)}
    assert all("went with their servers" in errors[worker] for worker in ("0.0", "1.0", "2.0"))


def test_backup_tasks_make_up_for_a_slow_worker() -> None:
    """Four workers, of which one is 10 times slower: the time of a step is that of three workers and a tenth."""

    def seconds(*slow: float) -> float:
        scenario = plain(**{**OWN, "peers": 4, "algorithm": "sandblaster:10", "steps": 4})
        workers = [Group(peers=1, link=scenario.groups[0].link, step_s=0.1 * factor) for factor in (1, 1, 1, *slow)]
        world, _ = run(load_task(TASK), replace(scenario, groups=(*workers, scenario.groups[-1])))
        assert all(float((model - alone(4)).abs().max()) < 1e-8 for model in models(world))
        return float(world.log.entries[-1].time_s)

    assert seconds(10.0) < 1.25 * 4 / 3.1 * seconds(1.0)


def test_slow_links_do_not_have_every_worker_map_every_portion() -> None:
    """Of 50,000 parameters over 320 kbit/s: the servers' links are busy for longer than a worker waits for a step."""
    scenario = plain(
        **{**OWN, "algorithm": "sandblaster:5", "steps": 1, "ranges": 16, "patience_s": 10.0, "servers": 1}
    )
    slow = tuple(replace(group, link=replace(group.link, down_Bps=40_000)) for group in scenario.groups)
    world, _ = run(toy_task(50_000), replace(scenario, toy_size=50_000, groups=slow))
    pushes = [entry.event for entry in world.log.entries if isinstance(entry.event, Acknowledged)]
    again = len(pushes) - len({(push.range, push.worker, push.seq) for push in pushes})
    assert len(models(world)) == 3
    assert again < len(pushes) / 2


def test_a_resumed_run_begins_anew_from_its_point() -> None:
    scenario = plain(**{**OWN, "steps": 30, "checkpoint_every_s": 0.0})
    outage = Fault(kind=Kind.OUTAGE, who=(), at_s=2.0, for_s=1.0)
    world, _ = run(load_task(TASK), replace(scenario, faults=(outage,)))
    assert len(models(world)) == 3
    assert all(at(model)[0] == pytest.approx(at(alone(30))[0], abs=1e-4) for model in models(world))


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--consistency", "async"), "--consistency"),
        (("--server-update", "sgd:0.1"), "--server-update"),
        (("--algorithm", "sandblaster:0"), "--algorithm"),
        (("--algorithm", "sandblaster:100", "--peers", "21"), "2100 portions"),
    ],
)
def test_what_does_not_go_with_it_is_said_in_one_line(flags: tuple[str, ...], said: str) -> None:
    ended = verb("simulate", TASK, "--protocol", "parameter-server", "--algorithm", "sandblaster", *flags)
    assert ended.exit_code == 2
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_portion_whose_loss_is_not_finite_sends_the_line_search_back() -> None:
    algorithm = parse_algorithm("sandblaster")
    assert algorithm.push(torch.tensor([1.0, float("nan"), 2.0]), 2).tolist() == [0, 0, pytest.approx(1e30)]
