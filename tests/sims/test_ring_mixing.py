"""A second conversation in one file: it trains, simulates, is swept, reports, is resumed and runs in a script, with
nothing of it known to the library."""

import json
from pathlib import Path

import pytest
import torch
from live import ROOT, samovar
from test_simulated_runs import TASKS, simulate
from tiers import soaked

from samovar.peers.records.run import read_run
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge

RING = ROOT / "tests/support/ring_mixing.py"


def spread(*, own_share: float) -> tuple[float, float]:
    """How far the models of six peers are from their mean at the end, and their mean loss then."""
    _, records, world = simulate(
        TASKS / "union.py", peers=6, steps=48, protocol=str(RING), mix_every=4, own_share=own_share
    )
    models = torch.stack([life.trainer.vector for life in world.lives])
    assert {life.peer.conversation.version for life in world.lives} == {12}
    losses = [record.loss for record in records if getattr(record, "version", 0) == 12]
    assert len(losses) == 6
    return float((models - models.mean(0)).norm()), sum(losses) / 6


def test_models_that_mix_in_a_ring_come_together() -> None:
    mixed, alone = spread(own_share=0.34), spread(own_share=0.999)
    assert mixed[0] < 0.5 * alone[0], "the control: with hardly any mix they stay apart"


@pytest.mark.parametrize("first", [50, soaked(0)])
def test_a_conversation_in_a_file_is_swept_as_those_of_the_library_are(first: int) -> None:
    """`samovar simulate --sweep 100 --protocol tests/support/ring_mixing.py` judges more of them."""
    wrong = {seed: judge(draw(seed, str(RING))).broken for seed in range(first, first + 8)}
    assert {seed: how for seed, how in wrong.items() if how} == {}


def test_a_promise_of_a_conversation_in_a_file_can_be_broken() -> None:
    scenario = draw(1, str(RING))
    module = __import__("sys").modules[scenario.settings.protocol.registered.simulation]
    promise = module.SIMULATION.checkers[0]
    log = [(0.0, "0.0", module.Mixed(1, 2)), (1.0, "0.0", module.Mixed(3, 2))]
    assert list(promise(scenario, log)) == ["0.0 mixed for the time 3 after 1"]


def test_processes_train_by_a_conversation_in_a_file_and_are_resumed(tmp_path: Path) -> None:
    task = ROOT / "examples/digits.py"
    own = ("--protocol", RING, "--mix-every", 8, "--peers", 2)
    first = samovar(tmp_path, "train", task, *own, "--steps", 80, "--run", "run", "--json")
    assert first.code == 0, first.err
    assert json.loads(first.out)["exchanges"] == 10
    assert "Neighbours" in (tmp_path / "run/report.html").read_text()
    again = samovar(tmp_path, "train", task, "--resume", "run", "--steps", 120, "--json")
    assert again.code == 0, again.err
    assert json.loads(again.out)["exchanges"] == 15
    run = read_run(tmp_path / "run")
    assert {record.details["neighbours"] for record in run.exchanges if record.version > 1} == {1}
    assert {record.version for record in run.exchanges} == set(range(1, 16))
