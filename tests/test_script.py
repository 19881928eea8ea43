"""Somebody's own PyTorch loop with a peer in it: the loop goes on as it did, and the peers average."""

from __future__ import annotations

import contextlib
import math
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT, Live
from torch import Tensor, nn

import samovar
from samovar.peers.records import read_run
from samovar.peers.task import load_task
from samovar.peers.trainer import Diverged
from samovar.protocols.addresses import split_address
from samovar.protocols.members.membership import JoinRefused

HERE = "tcp://127.0.0.1:0"
STEPS = 10


@pytest.fixture(autouse=True)
def _nothing_runs_on() -> Iterator[None]:
    yield
    assert threads() == []


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "samovar"]


def begin(folder: Path, **settings: Any) -> samovar.Run:
    return samovar.join(run=folder, listen=HERE, report=False, **settings)


def together(folder: Path, loops: list[Callable[[samovar.Run], Any]], **settings: Any) -> list[Any]:
    """Run each loop with a peer of its own; all are of one run."""
    founder = begin(folder / "0", peers=len(loops), **settings)
    with ThreadPoolExecutor(len(loops)) as pool:
        others = [
            pool.submit(lambda index=index, loop=loop: loop(joined(folder / str(index), founder)))
            for index, loop in enumerate(loops[1:], 1)
        ]
        return [loops[0](founder), *(other.result() for other in others)]


def joined(folder: Path, founder: samovar.Run) -> samovar.Run:
    assert founder.invitation is not None
    return samovar.join(**founder.invitation, run=folder, listen=HERE, name=folder.name)


def rounds(folder: Path) -> list[int]:
    return [record.round for record in read_run(folder).rounds]


class Bare:
    """A run that does nothing: the loop without Samovar."""

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        return optimizer

    def loss(self, loss: Tensor) -> None:
        pass

    def leave(self) -> None:
        pass


def network() -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.5, 0.5, generator=generator)
    return model


def batch_loss(model: nn.Module, step: int) -> Tensor:
    inputs = torch.randn(8, 6, generator=torch.Generator().manual_seed(step))
    return nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True).sin())


def everything(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """The weights, then the optimizer's own state."""
    state = [value for entry in optimizer.state_dict()["state"].values() for value in entry.values()]
    return [*(p.detach().clone() for p in model.parameters()), *(v for v in state if isinstance(v, Tensor))]


def scheduled(run: Any) -> list[Tensor]:
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    before = torch.optim.lr_scheduler.StepLR(optimizer, step_size=4, gamma=0.5)
    assert run.wrap(optimizer, model) is optimizer
    after = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss = batch_loss(model, step)
        loss.backward()
        run.loss(loss)
        optimizer.step()
        before.step()
        after.step()
    run.leave()
    return [*everything(model, optimizer), torch.tensor(optimizer.param_groups[0]["lr"])]


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
    ran = read_run(tmp_path / "0").rounds
    assert [(record.period, record.members) for record in ran] == [(3, 2)] * len(ran)
    assert len(ran) >= 3


def union(run: samovar.Run) -> Tensor:
    task = load_task(ROOT / "tests/tasks/union.py")
    model = network()
    optimizer = run.wrap(task.optimizer(model.parameters()), model)
    for batch in task.data(run.part, run.parts):
        optimizer.zero_grad()
        task.loss(model, batch).backward()
        optimizer.step()
    run.leave()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def single_process_on_the_union_batch() -> Tensor:
    task = load_task(ROOT / "tests/tasks/union.py")
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


def test_two_peers_that_average_seldom_do_not(tmp_path: Path) -> None:
    """The control of the test above: it can fail."""
    expected = single_process_on_the_union_batch()
    for found in together(tmp_path, [union, union], period=10):
        assert not torch.allclose(found, expected, atol=1e-5, rtol=0)


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


def test_what_fails_in_one_loop_is_told_to_the_others_who_go_on(tmp_path: Path) -> None:
    def failing(run: samovar.Run) -> None:
        with run:
            model = network()
            optimizer = run.wrap(torch.optim.SGD(model.parameters()), model)
            optimizer.step()
            raise RuntimeError("out of\nluck")

    def guarded(run: samovar.Run) -> None:
        with pytest.raises(RuntimeError, match="luck"):
            failing(run)

    together(tmp_path, [scheduled, guarded], period=2, patience_s=10_000.0)
    events = [(event.event, event.about, event.why) for event in read_run(tmp_path / "0").events]
    assert ("left", "1", "its script failed: RuntimeError: out of luck") in events
    assert rounds(tmp_path / "0") == list(range(1, 6))


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
        assert "41 elements in 4 tensors (peer 0)" in said
        return scheduled(run)

    founder = begin(tmp_path / "0", peers=2, period=5)
    assert founder.invitation is not None
    run_invitation = founder.invitation
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(lambda: other_first(joined(tmp_path / "1", founder)))
        scheduled(founder)
        other.result()
    assert [record.members for record in read_run(tmp_path / "0").rounds] == [2, 2]
    assert read_run(tmp_path / "stranger").rounds == ()


def test_a_run_that_cannot_be_joined_leaves_no_thread(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ValueError, match="nobody listens; is the run still there"):
            samovar.join(address, peer_key="ab" * 16, insecure=True, patience_s=0.5, listen=HERE, run=tmp_path / "run")
    for wrong, said in [
        ({"perid": 3}, 'unknown key "perid"; did you mean "period"?'),
        ({"period": 0}, "period must be a whole number of local steps from 1 to"),
        ({"address": "here"}, "'here' is no address"),
        ({"address": "tcp://127.0.0.1:4000"}, "say how to get in: --invite TEXT"),
    ]:
        with pytest.raises(ValueError, match=re.escape(said)):
            samovar.join(**wrong)
        assert threads() == []


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
    assert [record.loss for record in read_run(tmp_path / "run").rounds] == [2.0, 2.0, 2.0, 4.0]


# As processes, since what ends here is the process


def script(folder: Path, body: str) -> Path:
    """A training script with a network, an optimizer and `step()`, and then `body`."""
    path = folder / "mine.py"
    path.write_text(f"""
import os, sys, torch, samovar
from torch import nn
model = nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def step():
    optimizer.zero_grad()
    loss = model(torch.randn(4, 3)).square().mean()
    loss.backward()
    run.loss(loss)
    optimizer.step()
run = samovar.join()
run.wrap(optimizer, model)
first = run.part == 0
{body}
""")
    return path


# With a patience like this, to wait for who has gone is to fail by the test's own time limit.
TRAIN = ("--peers", 2, "--period", 4, "--run", "run", "--no-report", "--patience-s", 10_000)
ALONE = (*TRAIN, "--peers", 1)


def test_train_says_where_a_scripts_prints_go_and_how_another_script_joins(tmp_path: Path) -> None:
    body = "print('this is peer', run.part)\nwhile run.peers < 3: step()\nwhile run.peers == 3: step()\nrun.leave()"
    run = Live(tmp_path, "train", script(tmp_path, body), *TRAIN, "--json")
    assert run.process.stderr is not None
    how, prints = run.process.stderr.readline(), run.process.stderr.readline()
    assert prints == "what the script prints goes to run/peer-N.log, for each peer N\n"
    logs = [tmp_path / "run" / f"peer-{n}.log" for n in "01"]
    run.until(lambda: all(log.read_text() for log in logs), "a line from each script")
    assert [log.read_text() for log in logs] == ["this is peer 0\n", "this is peer 1\n"]
    call = re.fullmatch(r"join from \w+ machine: samovar\.join\('(tcp://\S+)', invite='(\S+)'\)\n", how)
    assert call is not None
    model = nn.Linear(3, 1)
    third = samovar.join(call[1], invite=call[2], run=tmp_path / "third", listen=HERE)
    optimizer = third.wrap(torch.optim.SGD(model.parameters()), model)
    for _ in range(8):
        optimizer.step()
    third.leave()
    ended = run.end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert ended.result["lost"] == []
    assert {record.members for record in read_run(tmp_path / "third").rounds if not record.caught_up} == {3}


def test_the_example_trains_under_the_launcher_and_alone(tmp_path: Path) -> None:
    example = ROOT / "examples/existing_loop.py"
    ended = Live(tmp_path, "train", example, *TRAIN, "--period", 16, "--json").end()
    assert ended.code == 0, ended.err
    assert len(ended.result["peers"]) == 2
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # several that share a busy machine mostly wait for each other
    alone = subprocess.run(
        [sys.executable, example], cwd=tmp_path, env=one_thread, check=True, capture_output=True, text=True
    )
    for said in (alone.stdout, *(log.read_text() for log in (tmp_path / "run").glob("*.log"))):
        told = re.fullmatch(r"accuracy (\d\.\d+)\n", said)
        assert told is not None, said
        assert float(told[1]) >= 0.95
    assert "samovar: join from another machine: samovar.join(address='tcp://" in alone.stderr


def test_a_script_that_forgets_to_leave_holds_nobody_up(tmp_path: Path) -> None:
    body = "for _ in range(6 if first else 20): step()\nif not first: run.leave()"
    ended = Live(tmp_path, "train", script(tmp_path, body), *TRAIN, "--json").end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert {peer["peer"]: peer["steps"] for peer in ended.result["peers"]} == {"0": 4, "1": 20}
    assert ended.result["lost"] == []
    left = [event.why for event in read_run(tmp_path / "run").events if event.event == "left"]
    assert left == ["its script ended"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("step()\nraise ValueError('mine')", r"peer 0: ValueError: mine; see run/peer-0\.log"),
        ("step()\nos._exit(3)", r"peer 0 exited with 3: it said nothing; see run/peer-0\.log"),
    ],
)
def test_a_script_that_fails_under_the_launcher_is_one_clear_line(tmp_path: Path, body: str, said: str) -> None:
    ended = Live(tmp_path, "train", script(tmp_path, body), *ALONE, "--json").end()
    assert (ended.code, ended.out, ended.left) == (2, "", []), ended.err
    assert re.fullmatch(f"samovar: {said}", ended.complaint)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import samovar\nimport nothing_of_that_name\n",
            "exited with 1: ModuleNotFoundError: No module named .*; see",
        ),
        ("import samovar\n", "ended before it took part, see"),
        ("import samovar\nsamovar.join()\n", r": its script ended without run\.wrap\(optimizer, model\)"),
    ],
)
def test_a_script_that_never_takes_part_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    ended = Live(tmp_path, "train", path, *ALONE).end()
    assert (ended.code, ended.left) == (2, []), ended.err
    assert re.match(rf"samovar: peer 0 ?{said}", ended.complaint), ended.complaint


def test_ctrl_c_ends_a_script_that_waits_for_others(tmp_path: Path) -> None:
    path = script(tmp_path, "")
    path.write_text(path.read_text().replace("samovar.join()", "samovar.join(peers=2, patience_s=10_000)"))
    with subprocess.Popen([sys.executable, path], cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert "waiting for 1 more" in process.stderr.readline()
        said = ""
        while process.poll() is None:  # Python loses a KeyboardInterrupt raised in the callback of a weak reference
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                _, said = process.communicate(timeout=20)
    assert process.returncode != 0
    assert said.splitlines()[-1] == "KeyboardInterrupt"


def test_ctrl_c_under_the_launcher_ends_the_scripts_in_good_order(tmp_path: Path) -> None:
    run = Live(tmp_path, "train", script(tmp_path, "while True: step()"), *TRAIN, "--json")
    run.until(lambda: run.rounds() >= 3, "round 3")
    run.signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.left) == (130, []), ended.err
    assert ended.result["rounds"] >= 3
    assert "Traceback" not in "".join(log.read_text() for log in (tmp_path / "run").glob("*.log"))
    assert ended.err.splitlines()[-1] == "stopped"


def test_data_loader_workers_take_no_part(tmp_path: Path) -> None:
    """They are forks of the script: one that ends must not end the peer."""
    body = """
loader = torch.utils.data.DataLoader(torch.randn(32, 3), batch_size=4, num_workers=1)
for _ in range(2):
    for batch in loader: step()
run.leave()"""
    ended = Live(tmp_path, "train", script(tmp_path, body), *ALONE, "--json").end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert [peer["steps"] for peer in ended.result["peers"]] == [16]
