"""What is promised of every way to train, each promise tried with each row of `ways.WAYS`."""

from __future__ import annotations

import functools
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from live import verb
from loops import Bare, network, nothing_runs_on, steps_of, together, union  # noqa: F401
from two_peers import TwoPeers
from way_loops import RecipeLoop, SomeSteps, whole_loop
from ways import EQUAL, PERIOD, WAYS, Way, promised, promised_always

import samovar
from samovar.peers.records.columns import heading, shown
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.roles import role_of
from samovar.peers.run_settings.settings import Settings
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

PEERS, STEPS_EACH, PATIENCE_S = 3, 24, 0.5
COMMON = {
    "peers": PEERS, "period": str(PERIOD), "steps": STEPS_EACH, "device": "cpu", "link": "100mbit,5ms",
    "patience_s": PATIENCE_S,
}  # fmt: skip


def settings_of(way: Way, **more: object) -> Settings:
    wished = {**COMMON, **way.settings, **more}
    settings = Settings(**{name: value for name, value in wished.items() if value is not None})
    assert not settings.own.scripts_only()
    return settings


class Played:
    """A simulated run that is over. Its log keeps every promise of its conversation."""

    def __init__(self, way: Way, *faults: Fault, late_s: float = 0.0, **more: object) -> None:
        self.settings, records = settings_of(way, **more), list[Record]()
        usual, self.newcomer = Scenario.plain(self.settings), self.settings.founders
        link, count = usual.groups[0].link, self.newcomer + bool(late_s)
        steps_ms = [way.steps_ms[index % len(way.steps_ms)] for index in range(count)]
        groups = [
            Group(peers=1, link=link, step_s=step_ms / 1e3, role=role_of(self.settings, index))
            for index, step_ms in enumerate(steps_ms)
        ]
        late = ((self.newcomer, late_s),) if late_s else ()
        scenario = replace(usual, groups=tuple(groups), arrivals=late, faults=faults)
        self.world = World(way.load(), scenario, records.append)
        run_virtual(self.world.run(within_s=100), seed=0)
        finished = [life for life in self.world.lives if life.result is not None and life.result.finished]
        self.lives = [life for life in finished if not life.role]
        """Those that train."""
        assert len(finished) == len(self.lives) + self.settings.own.server_count()
        self.exchanges: dict[str, list[ExchangeRecord]] = defaultdict(list)
        for record in records:
            if isinstance(record, ExchangeRecord) and not role_of(self.settings, int(record.peer)):
                self.exchanges[record.peer].append(record)
        self.steps = self.settings.steps or max(told[-1].step for told in self.exchanges.values())
        """Local steps of each peer when the run was over."""
        assert broken(scenario, self.world.log.entries) is None

    @property
    def models(self) -> list[bytes]:
        return [life.trainer.vector.numpy().tobytes() for life in self.lives]

    def longest_wait_s(self, *, without: int) -> float:
        """From one exchange to the next, of all peers but one."""
        of_others = [told for peer, told in self.exchanges.items() if peer != str(without)]
        return max(later.time_s - one.time_s for told in of_others for one, later in pairwise(told))

    def is_at_its_end(self, way: Way, *names: str) -> None:
        """These lives, and no others, have finished: all their steps are taken, and their models are one."""
        assert {life.name for life in self.lives} == set(names)
        assert {self.exchanges[str(life.index)][-1].step for life in self.lives} == {self.steps}
        if not self.settings.protocol.digest:  # a conversation of a user's own need not report it
            assert {life.result and life.result.end and life.result.end.by for life in self.lives} == {way.ended_by}
        if self.settings.protocol.registered.ends_together:
            members = {name.split(".")[0] for name in names}
            assert all({one.name for one in life.peer.membership.view.members} == members for life in self.lives)
        if EQUAL not in way.cannot:
            assert len(set(self.models)) == 1
            first, *others = [agreed(life, way) for life in self.lives]
            assert all(other == first for other in others)


def agreed(life: Life, way: Way) -> dict[str, Any]:
    """What the conversation keeps, but for that which is each peer's own: a compression residual, an elastic worker's
    model."""
    position = life.peer.conversation.position()
    tensors = {name: tensor.numpy().tobytes() for name, tensor in position.tensors.items() if name not in way.own}
    return tensors | dict(position.numbers)


@functools.cache
def plain(way: Way) -> Played:
    """Without faults; it is looked at by several promises."""
    return Played(way)


SAVED = {"checkpoint_every_s": 0.0}
"""A checkpoint of every exchange."""
EVERYBODY = tuple(f"{index}.0" for index in range(PEERS))


# What comes of it


@promised_always
def test_every_peer_ends_with_the_same_model(way: Way) -> None:
    """And each trains on with what all agreed on, and has told of the same exchanges, with the same decisions where all
    decide together."""
    played = plain(way)
    assert len(played.lives) == PEERS
    assert len(set(played.models)) == 1
    assert all(torch.equal(life.trainer.vector, life.peer.conversation.position().vector) for life in played.lives)
    together = played.settings.protocol.registered.ends_together
    told = [
        [(record.version, record.step, record.details if together else {}) for record in each]
        for each in played.exchanges.values()
    ]
    assert told == [told[0]] * PEERS


@promised_always
def test_every_peer_takes_all_its_steps_and_says_so_at_each_exchange(way: Way) -> None:
    played = plain(way)
    played.is_at_its_end(way, *EVERYBODY)
    for told in played.exchanges.values():
        assert [record.version for record in told] == list(range(1, told[-1].version + 1))
        steps = sum(round(record.steps_per_s * record.compute_s) for record in told if record.compute_s)
        if len(set(way.steps_ms)) == 1:
            assert steps == played.steps
            assert sum(record.compute_s for record in told) == pytest.approx(steps * way.steps_ms[0] / 1e3)


@promised_always
def test_records_account_for_every_second_and_byte(way: Way) -> None:
    played = plain(way)
    for life in played.lives:
        told = played.exchanges[str(life.index)]
        seconds = sum(record.compute_s + record.wait_s + record.transfer_s for record in told)
        assert told[-1].time_s == pytest.approx(seconds, rel=0.02)
        counted = sum(record.bytes_sent for record in told)
        sent, farewell = life.peer.endpoint.bytes_sent, 700 * played.settings.founders
        assert sent - farewell < counted <= sent
        assert all(record.members == PEERS or not way.all_at_once for record in told)


@promised_always
def test_each_way_is_another_run_than_the_plain_way(way: Way) -> None:
    assert plain(way).models[0] != plain(WAYS[0]).models[0]


@promised
def test_the_link_changes_no_bit(way: Way) -> None:
    assert Played(way, link="1mbit,100ms").models == plain(way).models


@promised
def test_the_command_line_simulates_each_way_and_writes_its_report(way: Way, tmp_path: Path) -> None:
    settings = settings_of(way, steps=4 * PERIOD)
    flags: list[object] = []
    given, arguments = {**COMMON, **way.settings, "steps": 4 * PERIOD, "device": None}, settings.arguments.split()
    for name, value in given.items():
        flag = f"--{name.replace('_', '-')}"
        flags += [] if value is None or name == "arguments" else [flag] if value is True else [flag, value]
    ended = verb("simulate", way.task, *flags, "--run", tmp_path / "run", "--json", "--", *arguments)
    assert ended.exit_code == 0, ended.output
    assert len(json.loads(ended.stdout)["peers"]) == settings.founders
    run = read_run(tmp_path / "run")
    assert {record.peer for record in run.exchanges if record.step == settings.steps} == {"0", "1", "2"}
    page = (tmp_path / "run/report.html").read_text("utf-8")
    columns, told = settings.protocol.registered.columns, {name for record in run.exchanges for name in record.details}
    assert told <= set(columns)
    assert all(heading(title) in page for name, title in shown(columns).items() if name in told)


# Peers that die, stand still, come late, come again


@promised
def test_a_killed_peer_never_stalls_the_others(way: Way) -> None:
    victim, at_step = way.some(PEERS, "victim"), 2 * PERIOD + way.some(2 * PERIOD, "step")
    played = Played(way, Fault(kind=Kind.CRASH, who=(victim,), at_step=at_step))
    played.is_at_its_end(way, *(name for name in EVERYBODY if name != f"{victim}.0"))
    for life in played.lives:
        assert [loss.name for loss in life.peer.membership.removals if not loss.left] == [str(victim)]
    usual_s = plain(way).longest_wait_s(without=victim)
    assert played.longest_wait_s(without=victim) <= 1.25 * PATIENCE_S + 2 * usual_s


@promised
def test_a_frozen_peer_is_given_up_and_takes_part_again_when_it_is_back(way: Way) -> None:
    victim = way.some(PEERS, "victim")
    fault = Fault(kind=Kind.PAUSE, who=(victim,), at_s=0.3 + way.some(10, "time") / 100, for_s=0.8)
    played = Played(way, fault)
    played.is_at_its_end(way, *EVERYBODY)
    usual_s = plain(way).longest_wait_s(without=victim)
    assert played.longest_wait_s(without=victim) <= 1.25 * PATIENCE_S + 2 * usual_s
    members = [record.members for peer, told in played.exchanges.items() if peer != str(victim) for record in told]
    assert min(members) == PEERS - 1 or not way.all_at_once, "without it"


@promised
def test_a_restarted_peer_takes_part_again_from_its_checkpoint(way: Way) -> None:
    victim = way.some(PEERS, "victim")
    played = Played(
        way, Fault(kind=Kind.RESTART, who=(victim,), at_s=0.35 + way.some(10, "time") / 100, for_s=0.1), **SAVED
    )
    played.is_at_its_end(way, *(f"{index}.{index == victim:d}" for index in range(PEERS)))


@promised
def test_a_newcomer_catches_up_and_takes_part(way: Way) -> None:
    played = Played(way, late_s=0.4 + way.some(10, "time") / 100)
    played.is_at_its_end(way, *EVERYBODY, f"{played.newcomer}.0")
    own = played.exchanges[str(played.newcomer)]
    assert own[-1].members >= (PEERS if way.all_at_once else 1)
    assert own[0].version > 1 or not played.settings.protocol.registered.ends_together


@promised
def test_after_an_outage_all_go_on_from_checkpoints_of_different_rounds(way: Way) -> None:
    played = Played(way, Fault(kind=Kind.OUTAGE, at_s=0.7, for_s=0.2), **SAVED)
    played.is_at_its_end(way, *(f"{index}.1" for index in range(PEERS)))


# Stopped and resumed


@functools.cache
def unbroken(way: Way) -> TwoPeers:
    return two(way)


def two(way: Way, **more: Any) -> TwoPeers:
    steps = 8 * PERIOD if way.ended_by == "steps" else None
    return TwoPeers(way.load(), settings_of(way, peers=2, steps=steps, link=None, **SAVED), **more)


@promised
def test_a_run_that_is_resumed_is_the_unbroken_one(way: Way) -> None:
    """Each tensor of the last checkpoints to the bit, be it of model, optimizer, outer step or codec."""
    snapshots = unbroken(way).snapshots
    halfway = snapshots[max(snapshots) // 2]
    assert len(halfway) == unbroken(way).settings.founders
    assert two(way, begun=halfway).everything == unbroken(way).everything


@promised
def test_a_run_that_is_stopped_at_any_time_is_resumed_and_takes_the_rest_of_its_steps(way: Way) -> None:
    stopped = two(way, stop_s=unbroken(way).took_s * (0.5 + way.some(40, "time") / 100))
    whole = unbroken(way).ends[0].steps
    assert whole == 8 * PERIOD or way.ended_by != "steps"
    assert max(end.steps for end in stopped.ends) < whole
    resumed = two(way, begun=stopped.kept)
    assert [end.steps for end in resumed.ends] == [whole] * 2
    for before, after in zip(stopped.computes[:2], resumed.computes[:2], strict=True):
        assert 0 <= before.steps + after.steps - whole <= way.longest, "a stop costs the steps of one exchange at most"
    if EQUAL not in way.cannot:
        assert torch.equal(*(end.model for end in resumed.ends))


# In a script's own loop


def of_script(way: Way) -> dict[str, Any]:
    settings = {"period": PERIOD, **way.settings, **({"site": "here"} if "site" in way.settings else {})}
    of_task = ("steps", "arguments", "evaluate_every")
    given = {name: value for name, value in settings.items() if value is not None and name not in of_task}
    assert not Settings(**given).own.tasks_only()
    return given


@promised
def test_two_scripts_end_with_the_model_of_a_task(way: Way, tmp_path: Path) -> None:
    """Model and data are those of the task, and the loop is written by hand."""
    (as_task,) = [row for row in WAYS if row.name == (way.as_task or way.name)]
    steps = steps_of(way.recipe) if way.recipe else 50
    task = way.load() if way.recipe else replace(way.load(), model=network)
    loops = [RecipeLoop(way), RecipeLoop(way)] if way.recipe else [union, union]
    one, other = together(tmp_path, loops, **of_script(way))
    expected = TwoPeers(task, settings_of(as_task, peers=2, steps=steps)).ends[0].model
    assert torch.equal(one, other)
    assert torch.allclose(one, expected[: len(one)], atol=1e-6 if way.as_task else 0, rtol=0)


@promised
def test_a_loop_of_one_peer_trains_as_without_it(way: Way, tmp_path: Path) -> None:
    expected, (found,) = whole_loop(way)(Bare()), together(tmp_path, [whole_loop(way)], **of_script(way))
    assert torch.equal(expected, found)


@promised
def test_a_failed_script_and_an_early_leaver_hold_no_peer_up(way: Way, tmp_path: Path) -> None:
    soon_gone, soon_failed, whole = SomeSteps(way), SomeSteps(way), whole_loop(way)

    def leaving(run: samovar.Run) -> None:
        soon_gone(run)
        run.leave()

    def failing(run: samovar.Run) -> None:
        def unlucky() -> None:
            with run:
                soon_failed(run)
                raise RuntimeError("out of\nluck")

        with pytest.raises(RuntimeError, match="luck"):
            unlucky()

    together(tmp_path, [whole, leaving, failing], patience_s=10_000.0, **of_script(way))
    run = read_run(tmp_path / "0")
    taken = [round(record.steps_per_s * record.compute_s) for record in run.exchanges if record.compute_s]
    assert sum(taken) == whole.steps
    if Settings(**of_script(way)).protocol.registered.ends_together:
        assert run.exchanges[-1].members == 1
        events = [(event.event, event.about, event.why) for event in run.events]
        assert ("left", "2", "its script failed: RuntimeError: out of luck") in events


def test_each_exception_is_of_a_promise_and_has_a_reason() -> None:
    known = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    for way in WAYS:
        assert {*way.cannot, *way.by_chance} <= known
        assert all([*way.cannot.values(), *way.by_chance.values()])
    assert len({way.name for way in WAYS}) == len(WAYS)
