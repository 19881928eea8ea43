"""Averaging while somebody's own loop goes on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from live import ROOT
from loops import Bare, begin, network, rounds, scheduled, together, union
from torch import Tensor, nn

import samovar
from samovar.peers.records.records import read_run
from samovar.peers.task.task import load_task

PERIOD = 10


def by_hand(period: int, fragments: int = 1, overlap_share: float | None = None) -> Tensor:
    """Delayed averaging of two peers, in plain PyTorch: x <- m + (x - b), or what is mixed, one period late, fragment
    by fragment."""
    task = load_task(ROOT / "tests/tasks/union.py")
    models = [network(), network()]
    optimizers = [task.optimizer(model.parameters()) for model in models]
    parts, brought = [list(task.data(part, 2)) for part in range(2)], list[Tensor]()
    agreed = nn.utils.parameters_to_vector(models[0].parameters()).detach().clone()
    size = len(agreed)

    def averaged(round_: int) -> slice:
        turn = round_ % fragments
        here = slice(size * turn // fragments, size * (turn + 1) // fragments)
        agreed[here] = (sum(brought) / 2)[here]
        return here

    for round_, start in enumerate(range(0, len(parts[0]), period)):
        for model, optimizer, batches in zip(models, optimizers, parts, strict=True):
            for batch in batches[start : start + period]:
                optimizer.zero_grad()
                task.loss(model, batch).backward()
                optimizer.step()
        now = [nn.utils.parameters_to_vector(model.parameters()).detach() for model in models]
        if brought:
            here = averaged(round_ - 1)
            for x, b in zip(now, brought, strict=True):
                x[here] = (
                    agreed[here] + (x - b)[here]
                    if overlap_share is None
                    else (overlap_share * x + (1 - overlap_share) * agreed)[here]
                )
            for model, vector in zip(models, now, strict=True):
                nn.utils.vector_to_parameters(vector.clone(), model.parameters())
        brought = now
    averaged(round_)
    return agreed


@pytest.mark.parametrize("streaming", [{}, {"fragments": 2}, {"fragments": 3, "overlap_share": 0.5}])
def test_two_scripts_do_delayed_averaging_and_end_with_the_same_bits(
    tmp_path: Path, streaming: dict[str, object]
) -> None:
    one, other = together(tmp_path, [union, union], period=PERIOD, overlap=True, **streaming)
    assert torch.equal(one, other)
    assert torch.allclose(one, by_hand(PERIOD, **streaming), atol=1e-5, rtol=0)
    fragments = streaming.get("fragments", 1)
    waiting, another = together(tmp_path / "without", [union, union], period=PERIOD, fragments=fragments)
    assert torch.equal(waiting, another)
    assert not torch.allclose(one, waiting, atol=1e-5, rtol=0), "the control: it is not what waiting for each gives"


def test_every_step_is_in_one_record_and_averaging_is_hidden_behind_them(tmp_path: Path) -> None:
    together(tmp_path, [union, union], period=PERIOD, overlap=True)
    ran = read_run(tmp_path / "0").rounds
    assert [record.round for record in ran] == [1, 2, 3, 4, 5]
    told = [round(record.steps_per_s * record.compute_s) for record in ran]
    assert told == [2 * PERIOD, PERIOD, PERIOD, PERIOD, 0], "before the first average and amid it; nothing in the last"
    assert all(record.hidden_s > 0 for record in ran[:-1])


@pytest.mark.parametrize("period", [1, 3])
def test_a_loop_of_one_peer_trains_as_without_it_to_the_bit(tmp_path: Path, period: int) -> None:
    expected, found = scheduled(Bare()), scheduled(begin(tmp_path / "run", peers=1, period=period, overlap=True))
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))


def test_what_is_left_of_a_period_is_averaged_when_it_leaves(tmp_path: Path) -> None:
    one, other = together(tmp_path, [scheduled, scheduled], period=4, overlap=True)  # 10 steps
    count = len(list(network().parameters()))
    assert all(torch.equal(a, b) for a, b in zip(one[:count], other[:count], strict=True))
    assert rounds(tmp_path / "0") == [1, 2, 3]


def test_a_script_that_fails_amid_a_round_holds_nobody_up(tmp_path: Path) -> None:
    def failing(run: samovar.Run) -> None:
        with run:
            model = network()
            optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
            for _ in range(3):
                optimizer.step()
            raise RuntimeError("out of luck")

    def guarded(run: samovar.Run) -> None:
        with pytest.raises(RuntimeError, match="luck"):
            failing(run)

    together(tmp_path, [scheduled, guarded], period=2, overlap=True, patience_s=10_000.0)
    events = [(event.event, event.about, event.why) for event in read_run(tmp_path / "0").events]
    assert ("left", "1", "its script failed: RuntimeError: out of luck") in events
    assert rounds(tmp_path / "0") == list(range(1, 6))


def test_a_script_is_told_of_a_setting_s_former_name_and_may_write_names_with_hyphens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with begin(tmp_path / "run", overlap=True, period=8, mixing=0.5, schedule="halving-doubling"):
        pass
    assert "samovar: samovar.join: mixing is called overlap_share now" in capsys.readouterr().err.splitlines()
    settings = json.loads((tmp_path / "run/settings.json").read_text("utf-8"))
    assert (settings["overlap_share"], settings["schedule"]) == (0.5, "halving_doubling")
