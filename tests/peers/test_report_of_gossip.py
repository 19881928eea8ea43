"""The report of a run whose peers keep models of their own: who gave models to whom, and how close the models were."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from live import verb
from synthetic import HOSTILE, in_memory, synthetic_records
from test_report import Page
from test_simulated_runs import TASKS

from samovar.aggregation.mixing.registry import parse_topology
from samovar.peers.records.run import Run, read_run
from samovar.peers.records.units import bytes_text
from samovar.peers.report.plot import plotted
from samovar.peers.report.talk_map import STRETCHES, edge_table, labels_of, talk_map
from samovar.peers.report.write import page
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.testpoints import Became
from samovar.sims.consensus import Observed
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

PEERS, ROUNDS = 6, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("gossip") / "run"
    task = TASKS / "judged.py"
    told = ("--protocol", "gossip", "--topology", "ring", "--period", "2", "--steps", 2 * ROUNDS, "--peers", PEERS)
    ended = verb("simulate", task, *told, "--evaluate-every", 4, "--run", made, "--json")
    assert ended.exit_code == 0, ended.stderr
    return made


@pytest.fixture(scope="module")
def run(folder: Path) -> Run:
    return read_run(folder)


def test_records_and_result_tell_the_bytes_that_came_from_each_neighbour(run: Run) -> None:
    ring = parse_topology("ring").neighbours(PEERS, 1)
    size = run.exchanges[0].model_bytes
    for record in run.exchanges:
        met = (
            2 if record.version == 1 and record.peer != "0" else 1
        )  # a peer that joins asks for the newest model first
        assert record.received_from.keys() == {str(other) for other in ring[int(record.peer)]}
        assert {*record.received_from.values()} <= {size, met * size}
    assert run.result is not None
    for peer in run.result.peers:
        told = [one.received_from for one in run.exchanges if one.peer == peer.peer]
        assert peer.received_from == {name: sum(one[name] for one in told) for name in told[0]}


def test_a_simulation_names_the_peer_whose_model_its_metrics_are_of(run: Run) -> None:
    last = {one.peer: one.metrics for one in run.exchanges if one.version == ROUNDS}
    assert len({tuple(metrics.items()) for metrics in last.values()}) > 1, "the models differ"
    assert run.result is not None
    assert run.result.metrics == last[run.result.metrics_of]


def test_the_edges_of_the_graph_are_drawn_for_the_whole_run_and_for_stretches_of_it(run: Run) -> None:
    drawn = talk_map(run)
    assert drawn.count("<line") == (1 + min(STRETCHES, ROUNDS // 2)) * PEERS
    gave = {one.peer: one.received_from for one in run.result.peers} if run.result else {}
    assert f"0 to 1: {bytes_text(gave['1']['0'])}, back: {bytes_text(gave['0']['1'])}" in drawn
    assert edge_table(run).count("<tr>") == 1 + PEERS


def test_the_report_has_each_peer_s_own_curves_and_those_of_the_mean_model(run: Run) -> None:
    shown = Page(page(run, ""))
    assert "Messages between peers" in shown.seen
    figures = shown.figures
    assert len(figures["own loss-time"]["data"]) == PEERS
    assert len(figures["own accuracy-time"]["data"]) == PEERS + 1
    (line,) = figures["consensus-time"]["data"]
    assert len(line["y"]) >= ROUNDS
    ids = [attributes.get("id") for _, attributes in shown.tags]
    assert {"own loss-time", "own accuracy-time", "consensus-time"} <= {*ids}
    assert run.result is not None
    assert run.result.consensus == run.scene.consensus[-1]
    assert json.loads(run.result.to_json())["consensus"]["peers"] == PEERS


def test_a_report_of_a_run_with_one_model_has_no_parts_of_gossip() -> None:
    text = page(in_memory(synthetic_records()), "")
    assert "Messages between peers" not in text
    assert "own loss" not in text


def test_names_from_peers_are_no_tags() -> None:
    records = {
        name: [dataclasses.replace(one, received_from={HOSTILE: 5}) if hasattr(one, "loss") else one for one in told]
        for name, told in synthetic_records(names=(HOSTILE, "b", "c", "d")).items()
    }
    drawn = talk_map(in_memory(records)) + edge_table(in_memory(records))
    assert "<script" not in drawn
    assert "&lt;/script&gt;" in drawn


def test_a_peer_without_a_known_name_is_not_drawn() -> None:
    records = {
        name: [dataclasses.replace(one, received_from={"9f" * 6: 5}) if hasattr(one, "loss") else one for one in told]
        for name, told in synthetic_records().items()
    }
    assert "<line" not in talk_map(in_memory(records))


def test_consensus_distance_is_that_of_all_models_from_their_mean() -> None:
    settings = Settings(
        protocol="gossip", topology="ring", peers=4, steps=12, period="2", evaluate_every=3, device="cpu"
    )
    world = World(load_task(TASKS / "union.py"), Scenario.plain(settings))
    observed, models, changes = Observed(world), dict[str, torch.Tensor](), Counter[str]()

    def saw(life: str, event: object) -> None:
        if isinstance(event, Became):
            models[life] = event.vector
            changes[life] += 1

    world.log.observers.append(saw)
    ended = run_virtual(world.run(), seed=0)
    observed.end(ended.virtual_s)
    assert set(changes.values()) == {6}
    stacked = torch.stack([*models.values()]).double()
    mean = stacked.mean(0)
    far = float((stacked - mean).square().sum(1).mean().sqrt() / mean.norm())
    last = observed.points[-1]
    assert last.distance == pytest.approx(far, rel=1e-9)
    assert (last.peers, last.version) == (4, 6)
    assert last.metrics == pytest.approx(world.lives[0].trainer.evaluate(mean.float()))


def test_watching_the_models_changes_nothing(folder: Path) -> None:
    settings = Settings(protocol="gossip", peers=3, steps=8, period="2", evaluate_every=2, device="cpu")

    def digest(*, watched: bool) -> str:
        world = World(load_task(TASKS / "judged.py"), Scenario.plain(settings))
        if watched:
            Observed(world)
        return run_virtual(world.run(), seed=0).digest

    assert digest(watched=True) == digest(watched=False)


def test_each_peer_has_a_label_of_its_own_in_the_graph() -> None:
    names = ["0", "vault", *(f"laptop-of-anna-{number}" for number in (1204, 1371, "1371-again", "1204-again"))]
    labels = labels_of(names)
    assert len({*labels.values()}) == len(names)
    assert max(len(label) for label in labels.values()) <= 14
    assert (labels["0"], labels["vault"], labels["laptop-of-anna-1204"]) == ("0", "vault", "p-of-anna-1204")


def test_a_long_name_stands_beside_its_circle_in_the_graph(run: Run) -> None:
    def graph(name: str) -> str:
        called = [
            dataclasses.replace(one, peer=name if one.peer == "1" else one.peer, received_from={"0": 7})
            for one in run.exchanges
        ]
        return talk_map(dataclasses.replace(run, exchanges=tuple(called), scene=None))

    assert ">vault</text>" in graph("vault")
    assert "text-anchor:start" in graph("vault")
    assert "text-anchor:start" in graph("anna"), "four letters are wider than a circle"
    assert "text-anchor:start" not in graph("v"), "short names stand in their circles"


def test_no_label_of_the_graph_is_cut_at_its_left_edge(run: Run) -> None:
    long = "mmmmmmmm-10372"
    called = [  # the last of four stands at the left
        dataclasses.replace(one, peer={"3": long}.get(one.peer, one.peer), received_from={"0": 7})
        for one in run.exchanges
        if one.peer in ("0", "1", "2", "3")
    ]
    drawn = talk_map(dataclasses.replace(run, exchanges=tuple(called), scene=None))
    ends = re.findall(rf'text-anchor:end" x="([0-9.]+)" y="[0-9.]+">{long}<', drawn)
    assert len(ends) == 1
    assert float(ends[0]) > 7.6 * len(long), "as wide as digits of 12 px in a wide font"


def test_a_curve_over_models_of_several_peers_says_of_which_it_is_the_mean(run: Run) -> None:
    text = "mean of the evaluations after that exchange, or about that time, by peers 0, 1, 2, 3, 4, 5."
    assert text in Page(page(run, "")).seen
    assert plotted(run, ["accuracy"]).layout.yaxis.title.text == f"accuracy, mean of {PEERS} peers"
    own = tuple(record for record in run.exchanges if record.peer == "0")
    alone = dataclasses.replace(run, exchanges=own, peers=("0",), scene=None, result=None)
    seen = Page(page(alone, "")).seen
    assert "mean of the evaluations" not in seen
    assert "mean over the peers" not in seen
    assert "a band reaches" not in seen


def test_two_charts_of_one_metric_have_one_kind_of_axis(run: Run) -> None:
    """A margin that falls a thousandfold, and a share whose values are close to each other."""
    for scale, values in (("lower", (1.0, 0.1, 0.001)), ("higher %", (0.94, 0.943, 0.946))):
        told = [
            dataclasses.replace(one, metrics={"m": values[min(2, one.version // 4)]}, metric_scales={"m": scale})
            for one in run.exchanges
        ]
        figures = Page(page(dataclasses.replace(run, exchanges=tuple(told), scene=None), "")).figures
        mean, own = (figures[name]["layout"]["yaxis"] for name in ("m-time", "own m-time"))
        assert own["type" if scale == "lower" else "tickformat"] == ("log" if scale == "lower" else ".2%")
        assert [mean.get(key) for key in ("type", "tickformat")] == [own.get(key) for key in ("type", "tickformat")]
