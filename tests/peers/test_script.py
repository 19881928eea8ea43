"""Somebody's own PyTorch loop with a peer in it: whatever ends, fails or differs, nobody else is harmed."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import math
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from live import run_here
from loops import HERE, batch_loss, begin, joined, network, nothing_runs_on, rounds, scheduled, threads, together  # noqa: F401
from torch import Tensor, nn

import samovar
from samovar.peers.launch.join_target import JoinFailed, JoinTarget
from samovar.peers.launch.script_target import JOIN_VARIABLE, ScriptTarget
from samovar.peers.launch.session import Session
from samovar.peers.peer import Peer
from samovar.peers.records.run import read_run
from samovar.peers.report.write import page
from samovar.peers.run_settings.settings import Settings
from samovar.peers.script.shutdown import shut_down
from samovar.peers.task.model_copy import Diverged
from samovar.protocols.addresses import split_address
from samovar.protocols.members.errors import JoinRefused
from samovar.sims.world.loop import run_virtual


def test_two_runs_one_after_the_other(tmp_path: Path) -> None:
    for run in ("first", "second"):
        together(tmp_path / run, [scheduled, scheduled], period=5)
        assert rounds(tmp_path / run / "1") == [1, 2]


def unreachable(address: str) -> bool:
    try:
        socket.create_connection(split_address(address)).close()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (KeyboardInterrupt(), "stopped by its user"),
        (SystemExit(1), "its script ended"),
        (RuntimeError("out of\nluck"), "its script failed: RuntimeError: out of luck"),
    ],
    ids=repr,
)
def test_the_others_are_told_why_a_script_ended_ctrl_c_is_no_failure(
    error: BaseException, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, bool]] = []

    async def noted(session: Session, peer: Peer, why: str, *, error: BaseException | None, **more: Any) -> None:
        told.append((why, error is not None))
        await shut_down(session, peer, why, error=error, **more)

    monkeypatch.setattr("samovar.peers.script.run.shut_down", noted)
    run, model = begin(tmp_path / "run"), network()
    with contextlib.suppress(type(error)), run:
        run.wrap(torch.optim.SGD(model.parameters()), model)
        raise error
    assert told == [(why, isinstance(error, RuntimeError))]


def test_an_exception_in_the_loop_leaves_no_thread_and_no_port(tmp_path: Path) -> None:
    run, model = begin(tmp_path / "run"), network()
    assert run.invitation is not None
    address, optimizer = run.invitation["address"], torch.optim.SGD(model.parameters())

    def failing() -> None:
        with run:
            run.wrap(optimizer, model)
            assert threads() == ["samovar"]
            assert not unreachable(address)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert threads() == []
    assert unreachable(address)
    optimizer.step()  # the loop's optimizer is free again
    run.leave()  # and to leave twice is no harm


def test_a_newcomers_part_is_told_when_it_is_known(tmp_path: Path) -> None:
    def wrapped(run: samovar.Run) -> int:
        with run:
            run.wrap(torch.optim.SGD((model := network()).parameters()), model)
            return run.part

    def newcomer(run: samovar.Run) -> int:
        with pytest.raises(ValueError, match=r"run\.part is known once run\.wrap has returned"):
            _ = run.part
        return wrapped(run)

    assert together(tmp_path, [wrapped, newcomer]) == [0, 1]


def test_a_run_tells_its_state_its_history_and_its_folder(tmp_path: Path) -> None:
    run, model = begin(tmp_path / "run", period=2), network()
    assert run.folder == tmp_path / "run"
    assert run.history == []
    assert repr(run) == f"<samovar.Run '0': not wrapped yet, in {tmp_path / 'run'}>"
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    assert repr(run) == f"<samovar.Run '0': part 0 of 1, 1 peer, period 2, in {tmp_path / 'run'}>"
    for step in range(5):
        batch_loss(model, step).backward()
        optimizer.step()
    assert [record.version for record in run.history] == [1, 2]
    run.leave()
    assert [record.version for record in run.history] == [1, 2, 3]
    assert {record.peer for record in run.history} == {"0"}
    assert repr(run) == f"<samovar.Run '0': left, in {tmp_path / 'run'}>"


def test_metrics_of_a_script_are_in_the_next_record_by_their_own_names(tmp_path: Path) -> None:
    model, scales = network(), {"perplexity": "lower", "top 3": "higher %"}
    run = begin(tmp_path / "run", period=2)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, metrics=scales)
    for step in range(6):
        optimizer.step()
        if step == 2:
            run.metrics({"top 3": torch.tensor(0.25), "perplexity": 9.0})
            run.metrics({"top 3": torch.tensor(0.5), "perplexity": 8.0})
    run.leave()
    first, second, third = run.history
    assert (first.metrics, third.metrics) == ({}, {}), "each is recorded once"
    assert [*second.metrics.items()] == [("perplexity", 8.0), ("top 3", 0.5)]
    assert second.metric_scales == scales
    assert (second.metrics_at, second.metrics_steps) == (1, 1)


def test_a_script_of_its_own_leaves_a_result_with_the_metrics_that_no_round_follows(tmp_path: Path) -> None:
    model, scales = network(), {"perplexity": "lower"}
    run = begin(tmp_path / "run", period=2)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model, metrics=scales)
    for _ in range(4):
        optimizer.step()
    run.metrics({"perplexity": 7.0})
    run.leave()
    result = samovar.Result.read(run.folder)
    assert (result.metrics, result.metric_scales, result.metrics_at) == ({"perplexity": 7.0}, scales, 2)
    assert [(peer.peer, peer.steps) for peer in result.peers] == [("0", 4)]
    assert result.wall_s == max(record.time_s for record in (*result.records, *result.events))
    assert (result.report, "not finished" in page(read_run(run.folder), "")) == (None, False)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("out of luck")], ids=repr)
def test_a_script_that_is_stopped_or_fails_leaves_a_result_too(error: BaseException, tmp_path: Path) -> None:
    run, model = begin(tmp_path / "run", period=1), network()
    with contextlib.suppress(type(error)), run:
        optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
        optimizer.step()
        raise error
    assert samovar.Result.read(run.folder).exchanges == 1


def test_a_plain_number_of_a_script_is_its_accuracy(tmp_path: Path) -> None:
    model = network()
    with begin(tmp_path / "run", period=1) as run:
        optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
        run.metrics(0.5)
        optimizer.step()
    record = run.history[0]
    assert (record.metrics, record.metric_scales) == ({"accuracy": 0.5}, {"accuracy": "higher %"})


def test_a_metric_that_cannot_be_recorded_is_told_in_one_line(tmp_path: Path) -> None:
    model = network()
    optimizer = torch.optim.SGD(model.parameters())
    with begin(tmp_path / "run", period=1) as run:
        with pytest.raises(ValueError, match=r"the records begin with run\.wrap: call run\.metrics after it"):
            run.metrics(0.5)
        with pytest.raises(ValueError, match=r"run\.wrap: metrics must be a dict of scales by name"):
            run.wrap(optimizer, model, metrics={"perplexity": "small"})
        run.wrap(optimizer, model, metrics={"perplexity": "lower", "top 3": "higher %"})
        for wrong, said in (
            ({"bleu": 1.0}, "run.metrics was given bleu; the declared metrics are perplexity, top 3"),
            (1.0, "run.metrics was given one number, and the declared metrics are perplexity, top 3: give a dict"),
            ({"perplexity": "low", "top 3": 0.5}, "; a number, or a dict of numbers by name, is due"),
        ):
            with pytest.raises(ValueError, match=re.escape(said)):
                run.metrics(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"run\.leave\(measure\) reports what measure\(\) returns"):
        run.metrics({"perplexity": 1.0, "top 3": 0.5})


def test_weights_that_are_not_finite_end_the_run_with_one_clear_line(tmp_path: Path) -> None:
    model = network()
    optimizer = begin(tmp_path / "run", period=1).wrap(torch.optim.SGD(model.parameters(), lr=0.5), model)
    batch_loss(model, 0).mul(math.inf).backward()
    with pytest.raises(Diverged, match=r"weights are not finite any more \(learning rate 0\.5\)"):
        optimizer.step()
    assert threads() == []


def test_a_peer_with_another_model_is_refused_and_does_no_harm(tmp_path: Path) -> None:
    def other_first(run: samovar.Run) -> list[Tensor]:
        stranger = samovar.join(**run_invitation, run=tmp_path / "stranger", listen=HERE, name="stranger")
        model = nn.Linear(2, 1)
        with pytest.raises(JoinRefused) as refused:
            stranger.wrap(torch.optim.SGD(model.parameters()), model)
        said = str(refused.value)
        assert "\n" not in said
        assert "different layouts: 3 elements in 2 tensors (peer stranger)" in said
        assert said.endswith("41 elements in 4 tensors (peer 0); is it the same script?")
        return scheduled(run)

    founder = begin(tmp_path / "0", peers=2, period=5)
    assert founder.invitation is not None
    run_invitation = founder.invitation
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: other_first(joined(tmp_path / "1", founder)))
        scheduled(founder)
        other.result()
    assert [record.members for record in read_run(tmp_path / "0").exchanges] == [2, 2]
    assert read_run(tmp_path / "stranger").exchanges == ()


def test_a_run_that_cannot_be_joined_leaves_no_thread(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match="nobody listens; is the run still there"):
            samovar.join(address, peer_key="ab" * 16, insecure=True, patience_s=0.5, listen=HERE, run=tmp_path / "run")
    for wrong, said in [
        ({"perid": 3}, 'no such argument "perid"; did you mean "period"?'),
        ({"steps": 5}, "leave out steps: a script takes as many steps as its own loop does"),
        ({"period": 0}, "period must be a whole number of local steps from 1 to"),
        ({"address": "here"}, "'here' is no address"),
        ({"address": "tcp://127.0.0.1:4000"}, "say how to get in: invite=TEXT, or key=FILE and peer_key=KEY"),
    ]:
        with pytest.raises(ValueError, match=re.escape(said)):
            samovar.join(**wrong)
        assert threads() == []


@pytest.mark.parametrize(("dials_s", "told"), [(1.9, []), (30.0, ["samovar: dialling tcp://h:4: no answer yet ..."])])
def test_a_script_that_dials_for_two_seconds_says_so_once_and_names_the_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], dials_s: float, told: list[str]
) -> None:
    async def dials(target: JoinTarget, *_: object, **__: object) -> None:
        await asyncio.sleep(dials_s)
        raise JoinFailed(target.address, "no answer")

    module = importlib.import_module("samovar.peers.script.join")
    monkeypatch.setattr(module, "open_at", dials)
    said = ScriptTarget("tcp://h:4", None, None, "erin", {}, "")
    with pytest.raises(JoinFailed):
        run_virtual(module._joined(JoinTarget("tcp://h:4", "ab", None, None), Settings(), said))
    assert capsys.readouterr().err.splitlines() == told


def test_a_script_joins_the_run_that_samovar_join_was_given_whatever_its_own_arguments_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"run": str(tmp_path / "1"), "listen": HERE, "patience_s": 7.0}
    with run_here(tmp_path / "0") as way:
        target = ScriptTarget(way["address"], way["invite"], None, "erin", settings)
        monkeypatch.setenv(JOIN_VARIABLE, target.environment()[JOIN_VARIABLE])
        run = samovar.join("tcp://192.0.2.1:9", invite="old", name="mine", patience_s=5, quorum=1)
        run.leave()
    assert JOIN_VARIABLE not in os.environ
    assert (run.folder, repr(run)) == (tmp_path / "1", f"<samovar.Run 'erin': left, in {tmp_path}/1>")
    kept = Settings.from_json((tmp_path / "1/settings.json").read_text())
    assert (kept.patience_s, kept.quorum) == (7.0, 1)


@pytest.mark.parametrize("listen", [HERE, "none"])
def test_a_script_that_joins_tells_others_the_way_through_itself_if_it_can_be_dialled_and_that_by_which_it_came(
    tmp_path: Path, listen: str
) -> None:
    with run_here(tmp_path / "0") as way:
        run = samovar.join(way["address"], invite=way["invite"], listen=listen, run=str(tmp_path / "1"))
        *own, last = (run.folder / "join.txt").read_text().splitlines()
        run.leave()
    assert way["address"] in last
    assert [way["address"] in line for line in own] == [False] * (listen != "none")


def test_a_run_averages_one_model(tmp_path: Path) -> None:
    model = network()
    with begin(tmp_path / "run") as run:
        optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
        with pytest.raises(ValueError, match="a run averages one model, once"):
            run.wrap(optimizer, model)
    with pytest.raises(ValueError, match="or join again"):
        run.wrap(optimizer, model)


def test_a_loss_that_nobody_tells_or_that_is_no_number_is_no_harm(tmp_path: Path) -> None:
    model = network()
    with begin(tmp_path / "run", period=1) as run:
        optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
        for told in (2.0, None, math.nan, torch.tensor([3.0, 5.0]).mean()):
            if told is not None:
                run.loss(told)
            optimizer.step()
    assert [record.loss for record in read_run(tmp_path / "run").exchanges] == [2.0, 2.0, 2.0, 4.0]
