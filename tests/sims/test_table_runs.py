"""Tables of rows on a parameter server, in simulations: they train as a whole table does, only the rows that are needed
travel, and servers come and go."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from test_parameter_server import run as run_toy
from test_simulated_runs import TASKS, simulate
from tiers import soaked
from two_servers import TWO_SERVERS

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.parameter_server.events import Entered, Took
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

WORDS = TASKS / "words.py"
OWN = {**TWO_SERVERS, "steps": 24}


def play(scenario: Scenario, task: Task | None = None) -> World:
    """The world after the scenario, whose promises are all kept."""
    world = World(task or load_task(WORDS), scenario)
    run_virtual(world.run(within_s=300), seed=scenario.settings.seed)
    for promise in promises.PARAMETER_SERVER:
        assert list(promise(scenario, world.log.entries)) == []
    return world


def model(life: Life) -> dict[str, torch.Tensor]:
    return {name: one.detach() for name, one in life.trainer.model.named_parameters()}


def same(one: Life, other: Life) -> bool:
    return all(torch.allclose(value, model(other)[name], atol=1e-6) for name, value in model(one).items())


@pytest.mark.parametrize(("servers", "copies"), [soaked(1, 1), (3, 2)])
def test_rows_on_servers_train_as_the_whole_table_does(servers: int, copies: int) -> None:
    """Plain SGD, a mean of all workers at each step: as in an allreduce, which averages the whole tables."""
    _, _, whole = simulate(WORDS, peers=3, period="1", steps=24)
    _, _, world = simulate(WORDS, **{**OWN, "servers": servers, "copies": copies})
    workers = [life for life in world.lives if not life.role]
    assert all(same(life, whole.lives[0]) for life in workers)


def test_only_the_rows_that_are_needed_travel() -> None:
    """A batch needs at most 12 rows; the tables have 101, then with 600 times as many no more bytes travel."""
    task = load_task(WORDS)

    def wide() -> torch.nn.Module:
        model = task.model()
        model.words = torch.nn.Embedding(60_000, 3, sparse=True)
        return model

    def sent(task: Task) -> tuple[int, list[ExchangeRecord]]:
        records: list[Any] = []
        run_virtual(World(task, Scenario.plain(Settings(**OWN)), records.append).run(), seed=0)
        told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
        return sum(one.bytes_sent for one in told), told

    few, told = sent(replace(task, evaluate=None))
    many, _ = sent(replace(task, model=wide, evaluate=None))
    assert abs(many - few) < 0.1 * few
    assert all(0 < one.details["rows"] <= 12 for one in told)
    assert all(one.model_bytes == 4 * 4 + one.details["rows"] * (8 + 3 * 4) for one in told)


CHOSEN = [
    soaked({"server_update": "adagrad:0.1", "consistency": "ssp:2"}),
    {"algorithm": "softsync:2", "server_update": "adam:0.01"},
    soaked({"algorithm": "backup:1"}),
    {"algorithm": "downpour:2:2", "server_update": "momentum:0.003"},
    soaked({"consistency": "bounded:2", "server_update": "sgd:0.1"}),
]


@pytest.mark.parametrize("chosen", CHOSEN, ids=lambda own: " ".join(own.values()))
def test_each_algorithm_brings_all_workers_to_a_better_model(chosen: dict[str, str]) -> None:
    world = play(Scenario.plain(Settings(**{**OWN, "copies": 2, **chosen})))
    workers = [life for life in world.lives if not life.role]
    assert [life.error for life in world.lives] == [None] * 5
    assert all(life.trainer.steps == 24 for life in workers)
    task = load_task(WORDS)
    batches = [batch for part in range(3) for batch in task.data(part, 3)]

    def loss(module: torch.nn.Module) -> float:
        with torch.no_grad():
            return float(sum(task.loss(module, batch) for batch in batches))

    at_first = loss(Trainer(task, seed=0, data_shard=0, data_shards=3, device=torch.device("cpu")).model)
    assert all(loss(life.trainer.model) < at_first for life in workers)


@pytest.mark.parametrize("first", [160, *(soaked(first) for first in range(40, 420, 20) if first != 160)])
@pytest.mark.parametrize("who", [soaked(3), 4, 0])
def test_a_peer_that_crashes_at_any_event_loses_no_acknowledged_row(who: int, first: int) -> None:
    own = {**OWN, "servers": 3, "steps": 3, "patience_s": 0.5, "consistency": "ssp:1", "server_update": "adagrad:0.1"}
    for at in range(first, first + 20, 7 if first == 160 else 2):
        fault = Fault(kind=Kind.CRASH, who=(who,), at_event=at)
        world = play(replace(Scenario.plain(Settings(**own)), faults=(fault,)))
        assert len([life for life in world.lives if life.result is not None and life.result.finished]) >= 5, at


def counting() -> Task:
    """A task whose every step adds 1 to each row that it needs: rows are counters, and all sums are whole numbers."""
    task = load_task(WORDS)

    def counters() -> torch.nn.Module:
        model = task.model()
        for one in model.parameters():
            torch.nn.init.zeros_(one)
        return model

    def loss(model: Any, batch: Any) -> torch.Tensor:
        word, context, _ = batch
        return -(model.words(word.unique()).sum() + model.contexts(context.unique()).sum() + model.scale.bias.sum())

    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=1.0)

    return replace(task, model=counters, loss=loss, optimizer=optimizer, evaluate=None)


FILTERS = ("significant:0.3,skip:0.3", "top_k:0.2,fp16", "top_k:0.5:fp16", "skip:0.5,int8")


@pytest.mark.parametrize("filters", [None, FILTERS[0], *map(soaked, FILTERS[1:])])
def test_a_server_that_joins_takes_rows_and_whole_numbers_stay_exact(filters: str | None) -> None:
    """Also with filters of pushes: what they keep back is in the worker's last push."""
    one_by_one = {"algorithm": "downpour:1:1", "server_update": "add", "consistency": "bsp", "filters": filters}
    settings = Settings(**{**OWN, **one_by_one, "steps": 40})
    plain, task = Scenario.plain(settings), counting()
    more = Group(peers=1, link=plain.groups[0].link, role="server")
    world = play(replace(plain, groups=(*plain.groups, more), arrivals=((5, 0.4),)), task)
    taken = [entry.event for entry in world.log.entries if entry.life == "5.0" and isinstance(entry.event, Took)]
    assert any(event.values.dim() == 2 for event in taken), "it has taken blocks of rows over"
    expected = torch.zeros(60, 3)
    for part in range(3):
        batches = [*task.data(part, 3)] * 4
        for word, _, _ in batches:
            expected[word.unique()] += 1
    found = model(next(life for life in world.lives if not life.role))["words.weight"]
    assert torch.equal(found.round() if filters and "int8" in filters else found, expected)


def test_a_run_with_tables_that_is_resumed_is_the_unbroken_one() -> None:
    """After an outage of all, from checkpoints of each exchange."""
    own = {**OWN, "checkpoint_every_s": 0.0, "patience_s": 0.5}
    plain = Scenario.plain(Settings(**own))
    world = play(replace(plain, faults=(Fault(kind=Kind.OUTAGE, at_s=0.35, for_s=0.2),)))
    ended = [life for life in world.lives if life.result is not None and life.result.finished]
    assert {life.name for life in ended} == {f"{index}.1" for index in range(5)}
    workers = [life for life in ended if not life.role]
    assert all(same(life, workers[0]) for life in workers)
    assert all(life.trainer.steps >= 20 for life in workers), "they have gone on from where they were"


def test_a_task_without_a_dense_part_trains() -> None:
    """All its values are in tables, and the vector is empty."""
    task = load_task(WORDS)

    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(60, 3, sparse=True)
            self.contexts = torch.nn.Embedding(41, 3, sparse=True)

        def forward(self, word: torch.Tensor, context: torch.Tensor) -> torch.Tensor:
            return (self.words(word) * self.contexts(context)).sum(1)

    records: list[Any] = []
    scenario = Scenario.plain(Settings(**{**OWN, "copies": 2, "server_update": "adagrad:0.1"}))
    world = World(replace(task, model=Products), scenario, records.append)
    run_virtual(world.run(), seed=0)
    workers = [life for life in world.lives if not life.role]
    assert [life.error for life in world.lives] == [None] * 5
    assert all(same(life, workers[0]) for life in workers)
    losses = [one.loss for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert sum(losses[-5:]) < 0.9 * sum(losses[:5])


def test_copies_whose_rows_differ_are_found() -> None:
    block = torch.zeros(4, 2)

    def entry(life: str, values: torch.Tensor) -> list[Any]:
        took = Took(0, 1, 0, 0, block, {})
        rows = torch.tensor([1, 3])
        return [(0.0, life, took), (0.0, life, Entered(0, 1, 1, (), values, {}, rows))]

    scenario, ones = Scenario.plain(Settings(**OWN)), torch.ones(2, 2)
    promise = promises.the_copies_of_a_range_agree
    assert list(promise(scenario, [*entry("3.0", ones), *entry("4.0", ones)])) == []
    assert list(promise(scenario, [*entry("3.0", ones), *entry("4.0", 2 * ones)])) == [
        "4.0 holds another version 1 of range 0 in term 1"
    ]


def test_the_plain_parameter_server_is_as_before() -> None:
    """A task without rows() has no tables."""
    world = run_toy(Scenario.plain(Settings(**OWN)))
    assert all(not isinstance(e.event, Entered) or e.event.rows is None for e in world.log.entries)


def test_filters_keep_rows_back_and_fewer_bytes_of_rows_are_pushed_for_as_good_a_model() -> None:
    def trained(filters: str | None) -> tuple[float, int, float]:
        """The mean loss of the last steps, the bytes of rows that were pushed, and the elements that were held back."""
        own = {**OWN, "algorithm": "downpour:1:1", "server_update": "add", "filters": filters, "steps": 90}
        records: list[Any] = []
        world = World(load_task(WORDS), Scenario.plain(Settings(**own)), records.append)
        run_virtual(world.run(), seed=0)
        told = [one for one in records if isinstance(one, ExchangeRecord)]
        pushed = sum(many for one in told for name, many in one.counts.get("pushed", {}).items() if "/" in name)
        workers = [one for one in told if not one.counts]
        held = sum(one.details.get("held_back", 0.0) for one in workers)
        return sum(one.loss for one in workers[-30:]) / 30, pushed, held

    plain, most, none = trained(None)
    loss, few, held = trained("skip:0.3,top_k:0.6")
    assert loss < 1.02 * plain
    assert few < 0.7 * most  # the last pushes have all rows that wait
    assert none == 0 < held
