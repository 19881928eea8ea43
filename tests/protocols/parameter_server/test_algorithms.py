"""The algorithms of the parameter server: each is its paper's formula, and each trains in a simulation."""

import json

import pytest
import torch
from test_simulated_runs import TASKS, simulate
from two_peers import TwoPeers
from two_servers import TWO_SERVERS

from samovar.aggregation.consistency import parse_consistency
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.parameter_server.algorithms.algorithm import MapReduce, Shared, weight_among
from samovar.protocols.parameter_server.algorithms.registry import ALGORITHMS, parse_algorithm
from samovar.protocols.parameter_server.worker import Worker

UNION = TASKS / "union.py"


def test_a_stale_push_counts_less() -> None:
    algorithm = parse_algorithm("staleness_aware")
    assert [algorithm.weight(staleness, 8) for staleness in (0, 1, 2, 5)] == [1, 1, 0.5, 0.2]


def test_softsync_makes_an_update_of_c_pushes_of_any_workers() -> None:
    algorithm = parse_algorithm("softsync:4")
    assert [algorithm.full(gathered, 9, 14) for gathered in (1, 2, 3)] == [False, False, True]
    assert algorithm.divisor(3) == 3
    assert algorithm.full(1, 0, 14), "nobody else will push"


@pytest.mark.parametrize(
    ("algorithm", "weight"),
    [
        ("sync", 1 / 4),
        ("backup:1", 1 / 3),
        ("downpour", 1.0),
        ("staleness_aware", 1 / 2),
        ("softsync:2", 1 / 2 / 2),
    ],
)
def test_what_one_of_four_workers_pushes_alone_in_the_end_counts_as_among_four(algorithm: str, weight: float) -> None:
    """Its staleness is 2, and an update is divided by its single push."""
    rule = parse_algorithm(algorithm)
    assert weight_among(rule, 2, 1, 4) / rule.divisor(1) == weight
    assert weight_among(rule, 2, 4, 4) == rule.weight(2, 4)
    on_arrival = parse_algorithm("sync").under(parse_consistency("async"))
    assert weight_among(on_arrival, 2, 1, 4) == 1 / 4


def test_elastic_averaging_moves_worker_and_center_towards_each_other() -> None:
    algorithm = parse_algorithm("easgd:0.25:2")
    center, after = torch.zeros(2), torch.full((2,), 4.0)
    change = algorithm.change(center, torch.ones(2), after)
    assert change.tolist() == [1, 1]
    assert algorithm.after(center, after, change).tolist() == [3, 3]


def test_elastic_averaging_goes_on_from_the_workers_own_models_after_a_resume() -> None:
    """The elastic force is all but nothing, so the center stays at the initial model."""
    own = {"algorithm": "easgd:0.000001:2", "steps": 24, "peers": 2, "checkpoint_every_s": 0.0, "evaluate_every": 1}
    settings = Settings(**{**TWO_SERVERS, **own})
    unbroken = TwoPeers(load_task(UNION), settings)
    resumed = TwoPeers(load_task(UNION), settings, begun=unbroken.snapshots[6])
    for worker in range(2):
        first, one, other = (
            run.snapshots[clock][worker].tensors["parameter_server/model"]
            for run, clock in ((unbroken, 1), (unbroken, 11), (resumed, 11))
        )
        assert torch.allclose(one, other, atol=1e-4)
        assert not torch.allclose(one, first, atol=1e-2)


def test_elastic_averaging_goes_on_from_the_workers_own_models_after_an_end_too() -> None:
    """The elastic force is all but nothing, so the center stays at the initial model."""
    own = {"algorithm": "easgd:0.000001:2", "peers": 2}
    longer, ended = (
        Settings(**{**TWO_SERVERS, **own, "steps": steps, "checkpoint_every_s": 0.0}) for steps in (36, 24)
    )
    unbroken, stopped = TwoPeers(load_task(UNION), longer), TwoPeers(load_task(UNION), ended)
    resumed = TwoPeers(load_task(UNION), longer, begun=stopped.kept)
    for worker in range(2):
        center = stopped.ends[worker].model
        assert torch.equal(center, stopped.ends[0].model), "the model of the run is the servers'"
        one, other = (run.snapshots[13][worker].tensors["parameter_server/model"] for run in (unbroken, resumed))
        assert torch.allclose(one, other, atol=1e-4)
        assert not torch.allclose(center, other, atol=1e-2)


def test_a_worker_of_elastic_averaging_that_evaluates_the_center_goes_on_from_its_own_model() -> None:
    """The elastic force is all but nothing: whoever went on from the center would be back at the initial model."""
    own = {"algorithm": "easgd:0.000001:2", "steps": 24, "peers": 2, "checkpoint_every_s": 0.0}
    often, never = (
        TwoPeers(load_task(TASKS / "judged.py"), Settings(**{**TWO_SERVERS, **own}, evaluate_every=every)).snapshots
        for every in (4, 1000)
    )
    for clock in (4, 5, 8, 11):
        one, other = (run[clock][0].tensors["parameter_server/model"] for run in (often, never))
        assert torch.allclose(one, other, atol=1e-4), clock


@pytest.mark.parametrize(("consistency", "first"), [("async", 6), ("ssp:2", 17), ("bounded:20", 6)])
def test_a_worker_of_a_resumed_run_goes_on_from_its_own_clock_within_the_bound(consistency: str, first: int) -> None:
    """The other worker and the servers are at clock 20, and know no worker of this run."""
    own = {"algorithm": "downpour:1:1", "consistency": consistency, "steps": 24, "peers": 2, "checkpoint_every_s": 0.0}
    settings = Settings(**{**TWO_SERVERS, **own})
    snapshots = TwoPeers(load_task(UNION), settings).snapshots
    begun = {part: _without_keys(one) for part, one in snapshots[20].items()} | {1: snapshots[6][1]}
    resumed = TwoPeers(load_task(UNION), settings, begun=begun)
    assert len(begun) == settings.founders
    assert [end.steps for end in resumed.ends] == [24, 24]
    assert [compute.steps for compute in resumed.computes[:2]] == [4, 24 - first]


def _without_keys(snapshot: Snapshot) -> Snapshot:
    """The checkpoint as of peers with other keys."""
    return Snapshot(
        snapshot.tensors, json.loads(json.dumps(snapshot.numbers).replace('"p0"', '"a"').replace('"p1"', '"b"'))
    )


def test_downpour_pushes_and_fetches_at_its_own_paces() -> None:
    algorithm = parse_algorithm("downpour:2:6")
    assert (algorithm.period, algorithm.pulls_every, algorithm.usual) == (2, 3, ("async", "adagrad"))


TOGETHER = [("backup:1", "async"), ("softsync:1", "ssp:2"), ("downpour:1:1:50", "bsp"), ("downpour:1:2", "ssp:1")]


@pytest.mark.parametrize(("algorithm", "consistency"), TOGETHER)
def test_an_algorithm_without_its_consistency_is_refused(algorithm: str, consistency: str) -> None:
    with pytest.raises(ValueError, match="consistency is"):
        parse_algorithm(algorithm).under(parse_consistency(consistency))


@pytest.mark.parametrize("text", ["downpour:2:3", "softsync:0", "easgd:1.5", "hogwash", "sync:1"])
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"cannot be|takes no|there is no"):
        parse_algorithm(text)


OF_STEPS = [name for name in ALGORITHMS if not isinstance(parse_algorithm(name), MapReduce | Shared)]


@pytest.mark.parametrize("name", [*OF_STEPS, "downpour:2:4:6"])
def test_every_algorithm_brings_all_workers_to_the_end(name: str) -> None:
    own = {**TWO_SERVERS, "steps": 24, "algorithm": name}
    _, records, world = simulate(UNION, server_update="add", **own)
    workers = [life.peer.conversation for life in world.lives if isinstance(life.peer.conversation, Worker)]
    assert all(isinstance(worker, Worker) and worker.state.step == 24 for worker in workers)
    assert records


def test_a_warm_start_lets_the_first_worker_go_ahead() -> None:
    own = {"protocol": "parameter-server", "ranges": 16, "peers": 3, "steps": 30, "algorithm": "downpour:1:1:20"}
    _, records, _ = simulate(UNION, server_update="add", **own)
    first = {peer: min(one.time_s for one in records if one.peer == peer and hasattr(one, "step")) for peer in "012"}
    ahead = [one for one in records if one.peer == "0" and hasattr(one, "step") and one.step == 18]
    assert ahead[0].time_s < min(first["1"], first["2"])
