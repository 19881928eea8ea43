"""Ctrl-C in a script is samovar.Stopped, whether `samovar train` has started it or not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live import Live
from loops import nothing_runs_on  # noqa: F401
from nursery import Forked
from test_script_processes import STOPPING, TRAIN, script

import samovar

STEPS = """
try:
    while True:
        step()
        print("stepped", file=sys.stderr, flush=True)
except samovar.Stopped as stopped:
    (run.folder / f"saved-{run.part}").write_text(f"{stopped}\\n{stopped!r}\\n")
    raise
"""
SAID = "stopped by its user: this script has left the run"


def alone(path: Path) -> Forked:
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    path.write_text(path.read_text().replace("samovar.join()", "samovar.join(run='run', report=False)"))
    return Forked([sys.executable, str(path)], cwd=path.parent, env={**os.environ}, **pipes)


def after_a_step(process: Forked) -> None:
    assert process.stderr is not None
    while process.stderr.readline() != "stepped\n":
        assert process.poll() is None, "it ended before a local step"


def test_ctrl_c_in_a_script_raises_stopped_and_its_handler_saves_the_last_state(tmp_path: Path) -> None:
    with alone(script(tmp_path, STEPS)) as process:
        after_a_step(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130
    assert {*said.splitlines()} <= {STOPPING, "stepped"}, "and no traceback"
    assert STOPPING in said
    assert (tmp_path / "run/saved-0").read_text().splitlines() == [SAID, f"Stopped({SAID!r})"]
    assert samovar.Result.read(tmp_path / "run").ended_why == "stopped by its user"


def test_it_is_the_same_exception_under_the_launcher(tmp_path: Path) -> None:
    run = Live(tmp_path, "train", script(tmp_path, STEPS), *TRAIN, "--json")
    run.until(lambda: run.rounds() >= 2, "round 2")
    run.signal(signal.SIGINT)
    assert run.end().code == 130
    for part in "01":
        assert (tmp_path / f"run/saved-{part}").read_text().splitlines() == [SAID, f"Stopped({SAID!r})"]


@pytest.mark.parametrize(("average", "taken"), [("model", True), ("gradients", False)])
def test_the_step_that_raises_stopped_has_been_taken_unless_gradients_are_averaged(
    average: str, taken: bool, tmp_path: Path
) -> None:
    body = """
try:
    while True:
        before = model.weight.detach().clone()
        step()
        print("stepped", file=sys.stderr, flush=True)
except samovar.Stopped:
    print("taken:", not model.weight.equal(before), file=sys.stderr, flush=True)
    raise
"""
    path = script(tmp_path, body)
    path.write_text(path.read_text().replace("samovar.join()", f"samovar.join(average={average!r})"))
    path.write_text(path.read_text().replace(".join(", ".join(run='run', report=False, "))
    with alone(path) as process:
        after_a_step(process)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert f"taken: {taken}" in said.splitlines()


def test_a_second_ctrl_c_ends_a_script_at_once_that_takes_no_step(tmp_path: Path) -> None:
    body = "step()\nprint('stepped', file=sys.stderr, flush=True)\ntime.sleep(10_000)"
    with alone(script(tmp_path, body)) as process:
        after_a_step(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.readline().strip() == STOPPING
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode in (1, -signal.SIGINT)
    assert "KeyboardInterrupt" in said


@pytest.mark.parametrize("own", ["signal.SIG_IGN", "lambda *_: None"])
def test_a_script_keeps_its_own_handler_of_ctrl_c(own: str, tmp_path: Path) -> None:
    kept = f"import signal\nown = {own}\nsignal.signal(signal.SIGINT, own)\nrun = samovar.join("
    path = script(tmp_path, "assert signal.getsignal(signal.SIGINT) is own\nrun.leave()")
    path.write_text(path.read_text().replace("run = samovar.join(", kept))
    with alone(path) as process:
        process.communicate()
    assert process.returncode == 0


def ended(folder: Path, body: str) -> tuple[int, str]:
    """The exit code of a script alone with this `body`, and what it has said on stderr."""
    with alone(script(folder, "import signal, threading\n" + body)) as process:
        _, said = process.communicate()
    return process.returncode, said


def test_ctrl_c_stops_a_script_whose_stderr_nobody_reads_any_more(tmp_path: Path) -> None:
    """Ctrl-C also ends the `tee` behind a pipe."""
    unread = "reads, writes = os.pipe()\nos.dup2(writes, 2)\nos.close(reads)\nsignal.raise_signal(signal.SIGINT)"
    code, _ = ended(tmp_path, unread + STEPS.replace('print("stepped", file=sys.stderr, flush=True)', "pass"))
    assert code == 130
    assert (tmp_path / "run/saved-0").read_text().splitlines()[0] == SAID


def test_a_forked_worker_goes_on_after_ctrl_c_and_says_nothing_itself(tmp_path: Path) -> None:
    """It may load the data of the step after which the script stops."""
    body = """
if not (child := os.fork()):
    signal.raise_signal(signal.SIGINT)
    os._exit(7)
_, status = os.waitpid(child, 0)
step()
run.leave()
sys.exit(os.waitstatus_to_exitcode(status))
"""
    code, said = ended(tmp_path, body)
    assert code == 7
    assert STOPPING not in said


LOADS = """
import os, signal, sys, time, torch, samovar

class Rows(torch.utils.data.Dataset):
    def __len__(self): return 100
    def __getitem__(self, row):
        if row == 8: print("stuck", file=sys.stderr, flush=True)
        while row == 8: time.sleep(1.0)
        return torch.ones(3)

if __name__ == "__main__":
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    run = samovar.join(run="run", report=False)
    run.wrap(optimizer, model)
    rows = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=1, multiprocessing_context="spawn")
    for batch in rows:
        model(batch).sum().backward()
        optimizer.step()
"""


@pytest.mark.soak
def test_ctrl_c_while_spawned_workers_load_a_batch_is_stopped_although_it_ends_them(tmp_path: Path) -> None:
    """As in a terminal, all processes of the script get the signal."""
    (tmp_path / "mine.py").write_text(LOADS)
    with subprocess.Popen(
        [sys.executable, "mine.py"], cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stderr is not None
        while process.stderr.readline() != "stuck\n":
            assert process.poll() is None, "it ended before"
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode == 130, said
    assert samovar.Result.read(tmp_path / "run").ended_why == "stopped by its user"


def test_ctrl_c_interrupts_a_script_as_usual_whose_other_thread_has_left_the_run(tmp_path: Path) -> None:
    body = """
step()
leaves = threading.Thread(target=run.leave)
leaves.start()
leaves.join()
signal.raise_signal(signal.SIGINT)
"""
    code, said = ended(tmp_path, body)
    assert code in (1, -signal.SIGINT)
    assert STOPPING not in said
    assert "KeyboardInterrupt" in said
