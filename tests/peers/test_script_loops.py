"""Somebody's own PyTorch loop with a peer in it trains as it did, whatever it does."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT
from loops import (  # noqa: F401
    STEPS,
    Bare,
    batch_loss,
    begin,
    everything,
    network,
    nothing_runs_on,
    rounds,
    scheduled,
    together,
    union,
)
from torch import Tensor, nn

import samovar
from samovar.peers.records.run import read_run
from samovar.peers.task.task import load_task


def clipped(run: Any) -> list[Tensor]:
    model = network()
    optimizer = run.wrap(torch.optim.AdamW(model.parameters(), lr=0.01), model)
    for step in range(STEPS):
        model.zero_grad(set_to_none=False)
        batch_loss(model, step).backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=0.1)
        optimizer.step()
    run.leave()
    return everything(model, optimizer)


def accumulated(run: Any) -> list[Tensor]:
    model = network()
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    for step in range(4 * STEPS):
        loss = batch_loss(model, step) / 4
        loss.backward()
        run.loss(4 * loss.detach())
        if step % 4 == 3:
            optimizer.step()
            optimizer.zero_grad()
    run.leave()
    return everything(model, optimizer)


def scaled(run: Any) -> list[Tensor]:
    """With a GradScaler that meets an overflow, skips that step and goes on with another scale."""
    model, scaler = network(), torch.amp.GradScaler("cpu", init_scale=2.0**12)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5), model)
    for step in range(STEPS):
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = batch_loss(model, step) * (math.inf if step == 5 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)
        run.loss(loss)
        scaler.step(optimizer)
        scaler.update()
    run.leave()
    assert scaler.get_scale() == 2.0**11
    return everything(model, optimizer)


def restored(run: Any) -> list[Tensor]:
    """Saves model and optimizer in the middle, spoils both, and goes on with what it saved."""
    model = network()
    optimizer = run.wrap(torch.optim.Adam(model.parameters(), lr=0.01), model)
    for step in range(STEPS):
        optimizer.zero_grad()
        batch_loss(model, step).backward()
        optimizer.step()
        if step == 4:
            kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            state = optimizer.state_dict()
            optimizer.load_state_dict(torch.optim.Adam(network().parameters(), lr=9.0).state_dict())
            model.load_state_dict(network().state_dict())
            model.load_state_dict(kept)
            optimizer.load_state_dict(state)
    run.leave()
    return everything(model, optimizer)


def searched(run: Any) -> list[Tensor]:
    """LBFGS: the optimizer calls the model by itself, as often as it likes."""
    model = network()
    optimizer = run.wrap(torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3), model)
    for _ in range(STEPS):

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = batch_loss(model, 0)
            loss.backward()
            return loss

        run.loss(optimizer.step(closure))
    run.leave()
    return [p.detach().clone() for p in model.parameters()]


def grown(run: Any) -> list[Tensor]:
    """A layer is thawed in the middle, as a second group of parameters; the model is of two precisions."""
    model = network()
    model[2].double()
    optimizer = run.wrap(torch.optim.SGD(model[0].parameters(), lr=0.1), model)
    for step in range(STEPS):
        if step == 4:
            optimizer.add_param_group({"params": model[2].parameters(), "lr": 0.01})
        optimizer.zero_grad()
        inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
        model[2](model[1](model[0](inputs)).double()).square().mean().backward()
        optimizer.step()
    run.leave()
    return everything(model, optimizer)


LOOPS = [scheduled, clipped, accumulated, scaled, restored, searched, grown]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("period", [1, 3])
def test_a_loop_of_one_peer_trains_as_without_it_to_the_bit(
    tmp_path: Path, loop: Callable[[Any], list[Tensor]], period: int
) -> None:
    expected, found = loop(Bare()), loop(begin(tmp_path / "run", period=period))
    assert len(expected) == len(found)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    taken = STEPS - (loop is scaled)
    assert rounds(tmp_path / "run") == list(range(1, math.ceil(taken / period) + 1))


@pytest.mark.parametrize("loop", LOOPS)
def test_two_peers_that_do_the_same_train_as_one_and_end_with_the_same_bits(
    tmp_path: Path, loop: Callable[[Any], list[Tensor]]
) -> None:
    expected, count = loop(Bare()), len(list(network().parameters()))
    one, other = together(tmp_path, [loop, loop], period=3)
    assert all(torch.equal(a, b) for a, b in zip(one[:count], other[:count], strict=True))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one, expected, strict=True))
    ran = read_run(tmp_path / "0").exchanges
    *periods, last = (record.details["period"] for record in ran)
    assert periods == [3] * len(periods)
    assert sum(periods) + last == ran[-1].step, "the last round ends amid a period"
    assert {record.members for record in ran} == {2}
    assert len(ran) >= 3


def single_process_on_the_union_batch() -> Tensor:
    task = load_task(ROOT / "tests/support/tasks/union.py")
    model = network()
    optimizer = task.optimizer(model.parameters())
    for one, other in zip(task.data(0, 2), task.data(1, 2), strict=True):
        optimizer.zero_grad()
        task.loss(model, [torch.cat(both) for both in zip(one, other, strict=True)]).backward()
        optimizer.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_two_peers_that_average_after_every_step_equal_sgd_on_the_union_batch(tmp_path: Path) -> None:
    expected = single_process_on_the_union_batch()
    for found in together(tmp_path, [union, union], period=1):
        assert torch.allclose(found, expected, atol=1e-5, rtol=0)


def test_two_peers_that_average_seldom_do_not_equal_sgd_on_the_union_batch(tmp_path: Path) -> None:
    """The control of the test above: it can fail."""
    expected = single_process_on_the_union_batch()
    for found in together(tmp_path, [union, union], period=10):
        assert not torch.allclose(found, expected, atol=1e-5, rtol=0)


def test_the_last_record_of_a_script_that_ends_amid_a_round_has_the_steps_that_it_took(tmp_path: Path) -> None:
    """Two rounds of 4 local steps, then 3 of the third. The other script goes on to the round's end."""

    def loop(run: samovar.Run, steps: int) -> list[tuple[int, float]]:
        model = network()
        optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        for step in range(steps):
            optimizer.zero_grad()
            batch_loss(model, step).backward()
            optimizer.step()
        run.leave()
        return [(record.step, record.details["period"]) for record in run.history]

    early, late = together(tmp_path, [lambda run: loop(run, 11), lambda run: loop(run, 12)], period="4")
    assert early == [(4, 4), (8, 4), (11, 3)]
    assert late == [(4, 4), (8, 4), (12, 4)]
