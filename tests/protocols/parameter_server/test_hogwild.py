"""Hogwild!: workers step in one memory, within a lock or without, and nobody else can."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from live import verb
from loops import RECIPES
from test_simulated_runs import TASKS, simulate

from samovar.aggregation.consistency import parse_consistency
from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.sharer import Sharer
from samovar.protocols.work import Evaluate, Share, Steps, Work
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.common_memory import CommonMemory
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

OWN = {"protocol": "parameter-server", "algorithm": "hogwild:free:2", "device": "cpu", "peers": 3, "steps": 12}


class Counted:
    """A lock that counts how often it was taken, and holds the model at each time."""

    def __init__(self, vector: torch.Tensor) -> None:
        self.vector, self.before, self.after = vector, list[torch.Tensor](), list[torch.Tensor]()

    def __enter__(self) -> None:
        self.before.append(self.vector.clone())

    def __exit__(self, *error: object) -> None:
        self.after.append(self.vector.clone())


def trainer() -> Trainer:
    task = load_task(TASKS / "judged.py")
    return Trainer(task, seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"))


def test_steps_change_the_shared_vector_each_within_the_lock() -> None:
    alone, other = trainer(), trainer()
    vector = other.vector
    lock = Counted(vector)
    assert alone.train(3) == 3
    update = other.do(Work(Share(vector, lock), Steps(3)))
    assert update is not None
    assert update.vector is vector, "nothing is copied"
    assert torch.equal(vector, alone.vector)
    assert len(lock.before) == 3
    assert all(not torch.equal(one, two) for one, two in zip(lock.before, lock.after, strict=True))
    assert all(torch.equal(one, two) for one, two in zip(lock.before[1:], lock.after, strict=False))


def test_an_evaluation_of_another_model_writes_nothing_to_the_shared_one() -> None:
    one = trainer()
    vector = one.vector
    share = Share(vector, Counted(vector))
    one.do(Work(share, Steps(1)))
    now, seen = vector.clone(), list[torch.Tensor]()

    def evaluate(model: torch.nn.Module) -> float:
        seen.append(torch.nn.utils.parameters_to_vector(model.parameters()).detach())
        vector[0] += 1.0  # another worker's step
        return 0.5

    object.__setattr__(one.task, "evaluate", evaluate)
    one.do(Work(share, Evaluate(torch.zeros_like(vector))))
    assert seen[0].count_nonzero() == 0
    assert vector[0] == now[0] + 1.0
    assert torch.equal(one.vector, vector)


def test_the_steps_of_all_workers_are_in_the_model_and_a_run_is_repeated_to_the_bit() -> None:
    (_, _, first), (_, _, again) = (simulate(TASKS / "union.py", **OWN) for _ in range(2))
    assert first.network.digest == again.network.digest
    models = [life.trainer.vector for world in (first, again) for life in world.lives]
    assert all(torch.equal(one, models[0]) for one in models)
    sharers = [life.peer.conversation for life in first.lives]
    assert [one.progress for one in sharers if isinstance(one, Sharer)] == [(6, 12)] * 3


def test_the_first_worker_evaluates_now_and_then_and_all_evaluate_the_last_model() -> None:
    _, records, world = simulate(TASKS / "judged.py", **OWN, evaluate_every=2)
    told = {
        (one.peer, one.version): one.metrics["accuracy"]
        for one in records
        if isinstance(one, ExchangeRecord) and one.metrics
    }
    assert {*told} == {("0", 2), ("0", 4)}
    ends = [life.result.metrics["accuracy"] for life in world.lives if life.result is not None]
    assert len(ends) == 3
    assert len({*ends}) == 1
    assert told["0", 2] < told["0", 4] < ends[0]


def test_the_memory_is_lent_on_when_the_worker_that_made_it_is_gone() -> None:
    """Else the newcomer would begin with another model."""
    settings = Settings(**{**OWN, "steps": 100, "patience_s": 0.5})
    groups = tuple(replace(group, step_s=0.02) for group in Scenario.plain(settings).groups)
    faults = (
        Fault(kind=Kind.CRASH, who=("founder",), at_s=0.2),
        Fault(kind=Kind.RESTART, who=(2,), at_s=1.5, for_s=0.1),
    )
    world = World(toy_task(), Scenario(settings=settings, groups=groups, faults=faults))
    run_virtual(world.run(within_s=100), seed=0)
    ended = [life for life in world.lives if life.result is not None and life.result.finished]
    assert {life.name for life in ended} == {"1.0", "2.1"}
    assert len({life.peer.conversation.position().vector.data_ptr() for life in ended}) == 1


def test_a_worker_on_another_machine_is_refused_before_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def attach(*given: object) -> None:
        raise OSError("no such process")

    monkeypatch.setattr(CommonMemory, "attach", attach)
    with pytest.raises(ValueError, match=r"the memory of peer \d at sim://.* cannot be mapped here .* one machine"):
        simulate(TASKS / "union.py", **OWN)


@pytest.mark.parametrize(
    "flags",
    [
        ("--servers", "2"),
        ("--copies", "1"),
        ("--server-update", "sgd:0.1"),
        ("--filters", "int8"),
        ("--consistency", "bsp"),
        ("--algorithm", "hogwild:wild"),
        ("--algorithm", "hogwild:free:0"),
    ],
)
def test_settings_that_shared_memory_has_no_use_for_are_refused_in_one_line(flags: tuple[str, ...]) -> None:
    own = ("--protocol", "parameter-server", *(() if "--algorithm" in flags else ("--algorithm", "hogwild")))
    ended = verb("simulate", TASKS / "union.py", *own, *flags)
    assert ended.exit_code == 2
    assert flags[0] in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_model_that_cannot_lie_in_one_vector_is_refused_in_one_line(tmp_path: Path) -> None:
    normed = tmp_path / "normed.py"
    text = (TASKS / "union.py").read_text("utf-8")
    normed.write_text(text.replace("nn.Tanh()", "nn.BatchNorm1d(5)"), "utf-8")
    for task in (normed, RECIPES / "lora.py"):
        ended = verb("simulate", task, "--protocol", "parameter-server", "--algorithm", "hogwild")
        assert ended.exit_code != 0
        assert "--algorithm hogwild needs a model on the CPU" in ended.stderr
        assert "Traceback" not in ended.stderr


def test_an_edge_peer_which_shares_no_memory_is_refused() -> None:
    with pytest.raises(SettingsError, match="does not go with --edge"):
        Settings(**OWN, edge=True)


def test_it_is_asynchronous() -> None:
    with pytest.raises(ValueError, match="consistency is async"):
        parse_algorithm("hogwild").under(parse_consistency("ssp:2"))
