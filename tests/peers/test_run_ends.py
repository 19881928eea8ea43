"""Runs that end by samples, epochs or a metric: what they say of it, and how they are resumed."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT, samovar, verb
from tiers import one_in
from two_peers import TwoPeers

from samovar import join
from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.task.task import Task, load_task
from samovar.peers.training.trainer import Trainer
from samovar.sims.scenarios.scenario import Fault, Kind, Moment, Scenario
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

TASKS = ROOT / "tests/support/tasks"
JUDGED, UNION = TASKS / "judged.py", TASKS / "union.py"


def play(
    task: Task, *faults: Fault, **settings: Any
) -> tuple[World, dict[str, list[ExchangeRecord]], list[EventRecord]]:
    exchanges, events = defaultdict[str, list[ExchangeRecord]](list), list[EventRecord]()

    def record(told: Record) -> None:
        if isinstance(told, ExchangeRecord):
            exchanges[told.peer].append(told)
        else:
            events.append(told)

    usual = {"peers": 3, "period": "4", "patience_s": 0.5, "device": "cpu"}
    scenario = replace(Scenario.plain(Settings(**{**usual, **settings})), faults=faults)
    world = World(task, scenario, record)
    run_virtual(world.run(within_s=300))
    assert broken(scenario, world.log.entries) is None
    return world, exchanges, events


# What an end means


@pytest.mark.parametrize(
    "more", one_in(2, [{}, {"overlap": True}, {"codec": "int8"}, {"fragments": 2}, {"outer": "nesterov"}])
)
def test_as_many_samples_or_epochs_as_the_steps_have_are_the_same_run(more: dict[str, Any]) -> None:
    """26 steps of 3 peers with 4 rows each, of 50 batches."""
    models = []
    for end in ({"steps": 26}, {"samples": 26 * 3 * 4}, {"epochs": 26 / 50}, {"samples": 10**6, "steps": 26}):
        world, exchanges, _ = play(load_task(UNION), **end, **more)
        assert {told[-1].step for told in exchanges.values()} == {26}
        models.append(world.lives[0].trainer.vector)
    assert all(torch.equal(models[0], other) for other in models[1:])


def endless(part: int, parts: int) -> Iterator[Any]:
    """As a generator, which tells no length."""
    yield from load_task(UNION).data(part, parts)[:10]  # type: ignore[index]


def test_records_tell_the_steps_that_are_left_of_a_run_that_ends_by_epochs() -> None:
    _, exchanges, _ = play(load_task(UNION), epochs=26 / 50)
    assert [(one.step, one.steps_left) for one in exchanges["1"]] == [
        (step, 26 - step) for step in (*range(4, 25, 4), 26)
    ]


def test_epochs_of_data_without_a_length_are_known_from_the_second_one_on() -> None:
    _, exchanges, _ = play(replace(load_task(UNION), data=endless), epochs=2.5)
    assert exchanges["0"][-1].step == 25
    _, exchanges, _ = play(replace(load_task(UNION), data=endless), epochs=1.0)
    assert exchanges["0"][-1].step == 12, "an end of the data is known when a step asks for more"


@pytest.mark.parametrize("steps", range(0, 24, 5))
def test_epochs_of_a_round_that_is_under_way_are_in_a_checkpoint(steps: int) -> None:
    for data in (load_task(UNION).data, endless):
        task = replace(load_task(UNION), data=data)
        one, other = (Trainer(task, seed=0, data_shard=0, data_shards=2, device=torch.device("cpu")) for _ in range(2))
        one.train(12)
        one.begin_round()
        one.train(steps)
        other.restore(one.snapshot())
        assert other.update().epochs == pytest.approx(one.update().epochs)
        for trainer in (one, other):
            trainer.train(30)
        assert other.update().epochs == pytest.approx(one.update().epochs)


# By a metric


STOP = {"stop": "accuracy >= 0.9", "evaluate_every": 2}


def test_all_peers_stop_in_the_round_after_the_evaluation_that_reached_the_goal() -> None:
    world, exchanges, events = play(load_task(JUDGED), **STOP)
    found = {
        record.version: record.metrics["accuracy"] for told in exchanges.values() for record in told if record.metrics
    }
    reached = min(version for version, value in found.items() if value >= 0.9)
    assert {told[-1].version for told in exchanges.values()} == {reached + 1}
    why = f"accuracy {found[reached]:.2%} in round {reached}, and the goal is accuracy >= 90%"
    assert [event.why for event in events if event.event == "ended"] == [why] * 3
    assert {life.result and life.result.end and life.result.end.by for life in world.lives} == {"stop"}


@pytest.mark.parametrize("number", one_in(3, range(1, 9)))
def test_peers_decide_alike_when_the_coordinator_dies_about_an_evaluation(number: int) -> None:
    """It dies at its commits of rounds, before and after those that it evaluates, and another one evaluates."""
    fault = Fault(kind=Kind.CRASH, who=("coordinator",), at_message=Moment("Commit", 3 * number, sent=True))
    world, _, events = play(load_task(JUDGED), fault, **STOP | {"stop": "accuracy >= 0.94"}, peers=4)
    lives = [life for life in world.lives if life.result is not None and life.result.finished]
    assert len(lives) == 3
    assert {life.result.end and life.result.end.by for life in lives if life.result} == {"stop"}
    assert len({life.trainer.vector.numpy().tobytes() for life in lives}) == 1
    assert len({event.why for event in events if event.event == "ended"}) == 1


def test_patience_ends_a_run_whose_headline_gets_no_better() -> None:
    task = load_task(JUDGED)
    values = iter([0.5, 0.1, 0.3, 0.4, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])  # the first is of the rehearsal
    _, exchanges, events = play(replace(task, evaluate=lambda model: next(values)), stop_patience=3, evaluate_every=1)
    assert {told[-1].version for told in exchanges.values()} == {7}
    whys = {event.why for event in events if event.event == "ended"}
    assert whys == {"no better accuracy for 3 rounds than 40.00% in round 3"}


def test_a_stopped_run_is_over_after_a_restart_and_goes_on_to_another_goal() -> None:
    settings = Settings(peers=2, period="4", device="cpu", checkpoint_every_s=0.0, **STOP)
    whole = TwoPeers(load_task(JUDGED), settings)
    again = TwoPeers(load_task(JUDGED), settings, begun=whole.kept)
    assert [end.version for end in again.ends] == [end.version for end in whole.ends]
    assert not [record for record in again.records if isinstance(record, ExchangeRecord) and record.compute_s]
    ended = [record.why for record in again.records if isinstance(record, EventRecord) and record.event == "ended"]
    assert len(ended) == 2
    further = TwoPeers(load_task(JUDGED), settings.changed(stop="accuracy >= 0.97"), begun=whole.kept)
    direct = TwoPeers(load_task(JUDGED), settings.changed(stop="accuracy >= 0.97"))
    assert [end.steps for end in further.ends] == [end.steps for end in direct.ends]
    assert torch.equal(further.ends[0].model, direct.ends[0].model)


def test_a_checkpoint_of_a_run_that_counted_nothing_is_resumed_and_can_stop_by_a_metric() -> None:
    settings = Settings(peers=2, period="4", device="cpu", checkpoint_every_s=0.0, evaluate_every=2, steps=8)
    begun = TwoPeers(load_task(JUDGED), settings).kept
    for snapshot in begun.values():
        del snapshot.numbers["state"]["counts"], snapshot.numbers["passes"]  # type: ignore[attr-defined]
    stopped = TwoPeers(load_task(JUDGED), settings.changed(steps=None, stop="accuracy >= 0.9"), begun=begun)
    assert stopped.ends[0].steps > 8
    with pytest.raises(ValueError, match="this run has not counted its epochs from the beginning: leave out --epochs"):
        TwoPeers(load_task(JUDGED), settings.changed(steps=None, epochs=2.0), begun=begun)


# What is said of it


def test_a_run_tells_why_it_ended_keeps_its_best_model_and_says_so_when_it_is_resumed(tmp_path: Path) -> None:
    usual = ("--peers", 2, "--period", 4, "--evaluate-every", 2, "--device", "cpu", "--listen", "tcp://127.0.0.1:0")
    ended = samovar(tmp_path, "train", JUDGED, *usual, "--stop", "accuracy >= 0.9", "--run", "run", "--json")
    result, best = ended.result, load(tmp_path / "run/checkpoint/best.safetensors")
    assert (result["ended_by"], "and the goal is accuracy >= 90%" in result["ended_why"]) == ("stop", True)
    assert result["best"]["file"] == "run/checkpoint/best.safetensors"
    assert best.numbers["version"] == result["best"]["at"]
    assert best.numbers["value"] == result["best"]["value"] >= 0.9
    last = load(tmp_path / "run/checkpoint/peer-0.safetensors")
    assert best.tensors.keys() == {name for name in last.tensors if name.startswith("model/")}
    again = samovar(tmp_path, "train", JUDGED, "--resume", "run")
    assert "the run was over before: accuracy " in again.out
    assert "and the goal is accuracy >= 90%; for more give another --stop" in again.out
    assert "ended: accuracy " in again.out
    assert ("best accuracy " in again.out) == (result["best"]["value"] != result["accuracy"])
    further = samovar(tmp_path, "train", JUDGED, "--resume", "run", "--stop", "accuracy >= 0.97", "--json")
    assert further.result["rounds"] > result["rounds"]
    assert further.result["best"]["value"] >= 0.97
    other = tmp_path / "other.py"
    other.write_text(f"{JUDGED.read_text()}\ndef lr_schedule(optimizer, steps): ...\n")
    refused = samovar(tmp_path, "train", other, "--resume", "run", "--stop", "accuracy >= 0.99")
    assert "the checkpoint is of another task (judged.py): " in refused.complaint, "and not only of its lr_schedule()"


def test_a_best_model_that_cannot_be_written_ends_no_training(tmp_path: Path) -> None:
    (tmp_path / "run/checkpoint/best.safetensors").mkdir(parents=True)
    usual = ("--peers", 2, "--period", 4, "--evaluate-every", 2, "--device", "cpu", "--listen", "tcp://127.0.0.1:0")
    ended = samovar(tmp_path, "train", JUDGED, *usual, "--epochs", 0.4, "--run", "run", "--json")
    assert (ended.code, ended.result["ended_by"], ended.result["best"]) == (0, "epochs", None)
    assert ended.result["peers"][0]["steps"] == 20
    lines = (tmp_path / "run/peer-0.jsonl").read_text() + (tmp_path / "run/peer-1.jsonl").read_text()
    assert "checkpoint_failed" in lines
    assert len(re.findall(r"peer [01]: the best model could not be kept: \S.*", ended.err)) == 1


def test_a_simulation_tells_why_it_ended(tmp_path: Path) -> None:
    done = verb("simulate", UNION, "--peers", 2, "--period", 4, "--samples", 100, "--run", tmp_path / "run", "--json")
    result = json.loads(done.stdout)
    assert (result["ended_by"], result["best"], result["peers"][0]["steps"]) == ("samples", None, 13)
    done = verb("simulate", UNION, "--peers", 2, "--period", 4, "--steps", 9, "--run", tmp_path / "other", "--json")
    result = json.loads(done.stdout)
    assert (result["ended_by"], result["ended_why"]) == ("steps", "the run has come to local step 9")
    assert result["missed"] == ""


def test_a_run_tells_the_goal_that_it_did_not_reach(tmp_path: Path) -> None:
    ends = ("--steps", 8, "--stop", "accuracy > 99.99%", "--evaluate-every", 1)
    done = verb("simulate", JUDGED, "--peers", 2, "--period", 4, *ends, "--run", tmp_path / "run", "--json")
    result = json.loads(done.stdout)
    assert (result["ended_by"], result["missed"]) == ("steps", "accuracy > 99.99%")
    assert "Ended: the run has come to local step 8; the goal accuracy &gt; 99.99% was not reached." in (
        (tmp_path / "run/report.html").read_text("utf-8")
    )


# What is refused


@pytest.mark.parametrize(
    ("task", "flags", "why"),
    [
        (JUDGED, ["--stop", "acuracy > 0.9"], "--stop names the metric 'acuracy'; evaluate() returns accuracy"),
        (UNION, ["--stop", "accuracy > 0.9"], "--stop needs evaluate(model), and the task has none"),
        (UNION, ["--stop-patience", 3], "--stop-patience needs evaluate(model), and the task has none"),
        (UNION, ["--stop", "accuracy"], "--stop must be a metric, one of >=, <=, > and <, and a number, as in 'acc"),
        (JUDGED, ["--stop", "accuracy > 90"], "--stop must be a share from 0 to 1, or in percent, as in 'acc"),
        (UNION, ["--epochs", 0], "--epochs must be a number from 1e-06 to 1e+09, got 0"),
        (UNION, ["--samples", 0.5], "'0.5' is not a valid"),
    ],
)
def test_an_end_that_cannot_be_is_one_line(tmp_path: Path, task: Path, flags: list[Any], why: str) -> None:
    done = verb("simulate", task, "--peers", 2, *flags, "--run", tmp_path / "run", "--quiet")
    assert done.exit_code == 2
    (line,) = done.stderr.splitlines()
    assert why in line


def test_a_goal_in_percent_is_for_a_share() -> None:
    own = Settings(stop="error < 5%").own
    own.check_metrics(["error"], "error", {"error": "lower %"})
    with pytest.raises(SettingsError, match="is in percent, and 'error' is not a share"):
        own.check_metrics(["error"], "error", {"error": "lower"})


def test_a_patience_without_a_headline_is_one_line(tmp_path: Path) -> None:
    """Metrics that METRICS does not declare have no order, and no way that is better."""
    (tmp_path / "task.py").write_text(UNION.read_text() + "\n\ndef evaluate(model):\n    return {'bleu': 1.0}\n")
    done = verb("simulate", tmp_path / "task.py", "--stop-patience", 3, "--run", tmp_path / "run", "--quiet")
    assert done.exit_code == 2
    assert (
        "--stop-patience needs the metric 'accuracy'; evaluate() returns bleu: name the first in METRICS" in done.stderr
    )


@pytest.mark.parametrize("end", [{"samples": 9}, {"epochs": 1.0}, {"stop": "accuracy > 1"}, {"stop_patience": 3}])
def test_a_script_decides_its_end_itself(end: dict[str, Any]) -> None:
    with pytest.raises(SettingsError, match=f"^leave out {next(iter(end))}: a script ends where its own loop does$"):
        join(**end)


def test_steps_have_their_usual_number_only_where_no_other_end_is_given() -> None:
    assert Settings().steps_max == 2000
    assert Settings(stop="accuracy > 0.9", stop_patience=3).steps_max == 2000
    assert Settings(samples=9).steps_max is None
    assert Settings().changed(epochs=1.5).steps_max is None
    assert Settings(epochs=1.5, steps=7).steps_max == 7
    assert Settings.from_json(Settings(samples=9, stop="m<1").to_json()) == Settings(samples=9, stop="m < 1")
