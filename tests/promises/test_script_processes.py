"""Somebody's own script as a process, since what ends here is the process."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from live import Live, python
from live import samovar as samovar_verb
from loops import HERE, nothing_runs_on, rounds  # noqa: F401
from nursery import Forked
from tiers import soaked

import samovar
from samovar.peers.launch.launcher import GRACE_S
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings


def script(folder: Path, body: str) -> Path:
    """A training script with a network, an optimizer and `step()`, and then `body`."""
    path = folder / "mine.py"
    path.write_text(f"""
import os, sys, time, torch, samovar
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


@pytest.mark.parametrize("afresh", [False, soaked(True)])
def test_train_says_where_a_scripts_prints_go_and_how_the_script_joins_on_another_machine(
    tmp_path: Path, afresh: bool
) -> None:
    """By the line as it is printed, with a copy of the script and no change to it."""
    body = """
print('this is peer', run.part, sys.argv[1:])
if run.folder.name == 'third':
    for _ in range(8): step()
else:
    while run.peers < 3: step()
    while run.peers == 3: step()
run.leave()
"""
    path = script(tmp_path, body).relative_to(tmp_path)
    run = Live(tmp_path, "train", path, *TRAIN, "--json", "--", "a b")
    assert run.process.stderr is not None
    how, prints = run.process.stderr.readline(), run.process.stderr.readline()
    assert prints == "what the script prints goes to run/peer-N.log, for each peer N\n"
    logs = [tmp_path / "run" / f"peer-{n}.log" for n in "01"]
    run.until(lambda: all(log.read_text() for log in logs), "a line from each script")
    assert [log.read_text() for log in logs] == ["this is peer 0 ['a b']\n", "this is peer 1 ['a b']\n"]
    command = re.fullmatch(r"join from \w+ machine: samovar (join tcp://\S+ mine\.py --invite \S+) -- 'a b'\n", how)
    assert command is not None
    there = ("--run", "third", "--name", "erin", "--listen", HERE)
    third = Live(tmp_path, *command[1].split(), *there, "--", "a b", run="third", afresh=afresh).end()
    assert (third.code, third.out) == (0, "this is peer 0 ['a b']\n"), third.err
    assert [file.name for file in (tmp_path / "third").glob("*.jsonl")] == ["peer-erin.jsonl"]
    ended = run.end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert ended.result["lost"] == []
    assert {record.members for record in read_run(tmp_path / "third").exchanges if not record.caught_up} == {3}


def test_a_script_with_other_arguments_than_the_runs_is_told_both_and_one_that_dials_itself_goes_on(
    tmp_path: Path,
) -> None:
    """By the command line as a task's peer is. A script that dials by itself may have the run's address among them."""
    path = script(tmp_path, "while not time.sleep(0.003) and not os.path.exists('over'): step()\nrun.leave()")
    path = path.relative_to(tmp_path)
    run = Live(tmp_path, "train", path, *ALONE, "--", "--width", 3)
    line = run.until(lambda: (run.folder / "join.txt").exists() and (run.folder / "join.txt").read_text(), "a line")
    words = shlex.split(line)[1 : line.split().index("--")]
    assert Settings.from_json((run.folder / "settings.json").read_text()).arguments == "--width 3"
    refused = Live(tmp_path, *words, "--run", "there", "--listen", HERE, "--", "--width", 4, run="there").end()
    assert refused.code == 1, refused.err
    assert "arguments must be the run's, '--width 3', got '--width 4': give the same after --" in refused.complaint
    assert not (tmp_path / "there").exists()
    dialling = f"samovar.join({words[1]!r}, invite={words[4]!r}, listen={HERE!r}, run=f'own {{os.getpid()}}')"
    own = tmp_path / "own.py"
    own.write_text(
        (tmp_path / path).read_text().partition("while")[0].replace("samovar.join()", dialling) + "run.leave()"
    )
    told = "samovar: this script's arguments are '--width 4', the run's '--width 3'\n"
    for given, said in ((("--width", 4), told), (("--width", 3), ""), ((f"--at={words[1]}",), "")):
        ended = python("own.py", *given, cwd=tmp_path)
        assert (ended.returncode, ended.stderr) == (0, said)
    lines = [file.read_text().splitlines()[0] for file in tmp_path.glob("own */join.txt")]
    assert len({line.split()[2] for line in lines}) == 3, "each by its own address"
    assert all(line.split()[4:] == ["--invite", line.split()[5], "--", "--width", "3"] for line in lines)
    (tmp_path / "over").touch()
    assert run.end().code == 0


def test_a_script_has_its_share_of_the_cores_in_its_own_thread(tmp_path: Path) -> None:
    """PyTorch counts for each thread: the peer's number was not the loop's, which had all cores beside the others."""
    path = script(tmp_path, "print('threads', torch.get_num_threads())\nrun.leave()")
    used = "torch.ones(300, 300) @ torch.ones(300, 300)\nrun = samovar.join()"
    path.write_text(path.read_text().replace("run = samovar.join()", used))
    ended = samovar_verb(tmp_path, "train", path, *TRAIN, "--threads", 1)
    assert ended.code == 0, ended.err
    assert [(tmp_path / f"run/peer-{n}.log").read_text() for n in "01"] == ["threads 1\n"] * 2


def test_a_scripts_metrics_are_shown_by_their_own_names_those_of_its_last_model_too(tmp_path: Path) -> None:
    body = "for n in range(8): step(); run.metrics({'perplexity': 19.5 - n})\nrun.leave()"
    path = script(tmp_path, body)
    path.write_text(path.read_text().replace("(optimizer, model)", "(optimizer, model, {'perplexity': 'lower nats'})"))
    ended = samovar_verb(tmp_path, "train", path, *ALONE)
    assert ended.code == 0, ended.err
    assert "perplexity 12.50 nats" in ended.out
    result = samovar.Result.read(tmp_path / "run")
    assert (result.metrics, result.metric_scales) == ({"perplexity": 12.5}, {"perplexity": "lower nats"})
    assert [record.metrics for record in result.records] == [{"perplexity": 17.5}, {"perplexity": 13.5}]


def test_the_model_that_scripts_leave_with_may_be_measured_for_long_by_one_of_them(tmp_path: Path) -> None:
    """For longer than the launcher waits for a task's peer once another one has finished: it is not killed."""
    body = f"""
for _ in range(8): step()
run.metrics(0.5)
def measure():
    import time
    time.sleep({1 + GRACE_S + 1})
    return 12.5
run.leave(measure) if first else run.leave()
"""
    ended = samovar_verb(tmp_path, "train", script(tmp_path, body), *TRAIN, "--patience-s", 1, "--json")
    assert (ended.code, ended.result["lost"]) == (0, []), ended.err
    assert (ended.result["metrics"], ended.result["metrics_of"]) == ({"accuracy": 12.5}, "")
    assert ended.result["metrics_at"] == ended.result["rounds"]


def test_a_script_that_works_on_after_the_others_have_ended_is_named_with_what_ends_it(tmp_path: Path) -> None:
    body = """
for _ in range(8): step()
run.leave()
while run.part == 0 and not os.path.exists('told'): time.sleep(0.003)
"""
    run = Live(tmp_path, "train", script(tmp_path, body), *TRAIN, "--patience-s", 0.5, "--json")
    assert run.process.stderr is not None
    lines = iter(run.process.stderr.readline, "")
    line = next((line for line in lines if line.startswith("still at work")), "none until the run's end")
    (tmp_path / "told").touch()
    assert run.end().code == 0
    what = "the script of peer 0 (has left the run); the run ends with the last script, or by Ctrl-C"
    assert line == f"still at work: {what}\n"


def test_a_script_that_forgets_to_leave_holds_no_peer_up(tmp_path: Path) -> None:
    body = "for _ in range(5 if first else 20): step()\nif not first: run.leave()"
    ended = samovar_verb(tmp_path, "train", script(tmp_path, body), *TRAIN, "--json")
    assert (ended.code, ended.left) == (0, []), ended.err
    assert {peer["peer"]: peer["steps"] for peer in ended.result["peers"]} == {"0": 4, "1": 20}
    assert ended.result["lost"] == []
    left = [event.why for event in read_run(tmp_path / "run").events if event.event == "left"]
    assert left == ["its script ended"]
    assert "peer 0: run.leave() was not called: 1 local step is lost" in ended.err


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("step()\nraise ValueError('mine')", r"peer 0: mine\.py, line \d+: ValueError: mine; see run/peer-0\.log"),
        ("step()\nos._exit(3)", r"peer 0 exited with 3: it said nothing; see run/peer-0\.log"),
    ],
)
def test_a_script_that_fails_under_the_launcher_is_one_clear_line(tmp_path: Path, body: str, said: str) -> None:
    ended = samovar_verb(tmp_path, "train", script(tmp_path, body), *ALONE, "--json")
    assert (ended.code, ended.out, ended.left) == (2, "", []), ended.err
    assert re.fullmatch(f"samovar: {said}", ended.complaint)


def test_a_script_that_fails_amid_the_run_is_named_in_its_result(tmp_path: Path) -> None:
    steps = "for _ in range(8): step()\n"
    body = f"{steps}if not first: raise ValueError('a bug')\n{steps}run.leave()"
    ended = samovar_verb(tmp_path, "train", script(tmp_path, body), *TRAIN, "--quorum", 1, "--json")
    assert ended.code == 0, ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["1"]
    assert ended.result["lost"][0]["when"] < ended.result["wall_s"], "it was not at the end"
    why = ended.result["lost"][0]["why"]
    assert re.fullmatch(r"mine\.py, line \d+: ValueError: a bug; see run/peer-1\.log", why)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "import samovar\nimport nothing_of_that_name\n",
            "exited with 1: ModuleNotFoundError: No module named .*; see",
        ),
        ("import samovar\n", "ended before it took part, see"),
        ("import samovar\nsamovar.join(seed=3)\n", "exited with 1: samovar: mine.py, line 2: leave out seed: a script"),
        soaked("import samovar\nsamovar.join()\n", r": its script ended without run\.wrap\(optimizer, model\)"),
    ],
)
def test_a_script_that_never_takes_part_is_one_clear_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "mine.py"
    path.write_text(text)
    ended = samovar_verb(tmp_path, "train", path, *ALONE)
    assert (ended.code, ended.left) == (2, []), ended.err
    assert re.match(rf"samovar: peer 0 ?{said}", ended.complaint), ended.complaint


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ((), "this script's settings contradict those of its run: period must be 1 when gradients are averaged, got 4"),
        (("--period", "1"), "average is 'gradients' in this script, and 'model' in the run: start the run by "),
        (("--average", "gradients", "--period", "1"), "its script ended without run.wrap"),
    ],
)
def test_a_script_is_refused_whose_run_was_started_without_a_setting_that_it_asks_for(
    tmp_path: Path, told: tuple[str, ...], said: str
) -> None:
    (tmp_path / "mine.py").write_text("import samovar\nsamovar.join(average='gradients', peers=9)\n")
    ended = samovar_verb(tmp_path, "train", "mine.py", *ALONE, *told)
    assert (ended.code, ended.left) == (2, []), ended.err
    assert said in ended.complaint


OTHERS = (
    "period is '5' in this script, and 'adaptive' in the run; outer is 'nesterov' in this script, and 'plain' in the"
    " run; overlap is True in this script, and False in the run"
)


def test_a_script_that_asks_for_other_settings_is_told_all_of_them_and_one_command_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "import samovar\nsamovar.join(period=5, outer='nesterov', overlap=True, peers=9)\n"
    (tmp_path / "mine.py").write_text(asked)
    given = ("train", "mine.py", "--peers", "1", "--link", "10mbit,40ms", "--", "--width", "3")
    monkeypatch.setattr(sys, "argv", ["samovar", *given])
    ended = samovar_verb(tmp_path, *given)
    found = re.search(r"mine\.py, line 2: (.*): start the run by samovar (train .*)$", ended.complaint)
    assert found is not None, ended.complaint
    assert found[1] == OTHERS
    assert found[2] == "train mine.py --peers 1 --link 10mbit,40ms --period 5 --outer nesterov --overlap -- --width 3"
    assert "ended without run.wrap" in samovar_verb(tmp_path, *found[2].split()).complaint, "the settings are the run's"


def test_a_script_that_python_starts_with_other_settings_is_told_the_whole_call(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import samovar\nsamovar.join(period=5, protocol='gossip', algorithm='choco')\n")
    (tmp_path / "runs.py").write_text("import samovar\nsamovar.train('mine.py', peers=1)\n")
    ended = python("runs.py", cwd=tmp_path)
    call = "samovar.train('mine.py', peers=1, protocol='gossip', period='5', algorithm='choco')"
    assert ended.stderr.endswith(f"start the run by {call}\n")
    assert not [*(tmp_path / "runs").iterdir()], "it leaves nothing"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("samovar.join('here')", "mine.py, line 3: 'here' is no address"),
        ("samovar.join(period=0)", "mine.py, line 3: period must be a whole number of local steps from 1 to"),
        ("samovar.load(nn.Linear(1, 1), 'gone')", "mine.py, line 3: gone: there is no such run folder"),
        ("try: samovar.join('here')\nexcept ValueError as error: print(type(error).__name__)", ""),
        ("int('x')", None),
    ],
)
def test_an_error_that_ends_a_script_is_one_line_with_its_place(tmp_path: Path, text: str, said: str | None) -> None:
    """Of Samovar; the script's own errors have their traceback, and those that it catches are exceptions."""
    (tmp_path / "mine.py").write_text(f"import samovar\nfrom torch import nn\n{text}\n")
    ended = python("mine.py", cwd=tmp_path)
    if said is None:
        assert ended.stderr.startswith("Traceback")
        assert ended.stderr.endswith("ValueError: invalid literal for int() with base 10: 'x'\n")
    elif said:
        assert ended.stderr.startswith(f"samovar: {said}")
        assert ended.stderr.count("\n") == 1
        assert ended.returncode == 1
    else:
        assert (ended.returncode, ended.stdout, ended.stderr) == (0, "ValueError\n", "")


def test_in_a_notebook_and_where_a_user_types_errors_stay_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    def usual(*_: object) -> None:
        """A hook that is there before."""

    monkeypatch.setattr(sys, "excepthook", usual)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", "mine.py", raising=False)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    with pytest.raises(ValueError, match="'here' is no address"):
        samovar.join("here")
    assert sys.excepthook is usual
    monkeypatch.delattr(sys, "ps1")
    for _ in range(2):
        with pytest.raises(ValueError, match="'here' is no address"):
            samovar.join("here")
    assert sys.excepthook.__name__ == "uncaught"
    assert [cell.cell_contents for cell in sys.excepthook.__closure__ or ()] == [usual], "it is set once"


def test_ctrl_c_ends_a_script_that_waits_for_others(tmp_path: Path) -> None:
    path = script(tmp_path, "")
    path.write_text(path.read_text().replace("samovar.join()", "samovar.join(peers=2, patience_s=10_000)"))
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with Forked([sys.executable, str(path)], cwd=tmp_path, env={**os.environ}, **pipes) as process:
        assert process.stderr is not None
        assert "waiting for 1 more" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
    assert process.returncode in (130, -signal.SIGINT), "the signal may come before samovar.join has returned"
    assert said.splitlines()[:1] == [STOPPING] or "KeyboardInterrupt" in said.splitlines()


STOPPING = "samovar: stopping after this local step; Ctrl-C again ends the script at once"


TASK = """
import torch
def model(): return torch.nn.Linear(3, 1)
def data(part, parts): return [torch.ones(4, 3)]
def loss(model, batch): return model(batch).square().mean()
"""


def test_a_joiner_that_leaves_before_its_first_round_says_so_and_how_to_join_again(tmp_path: Path) -> None:
    path, task = script(tmp_path, ""), tmp_path / "task.py"
    path.write_text(path.read_text().replace("samovar.join()", "samovar.join(peers=3, patience_s=10_000)"))
    task.write_text(TASK)
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
    with Forked([sys.executable, str(path)], cwd=tmp_path, env={**os.environ}, **pipes) as founder:
        assert founder.stderr is not None
        way = re.search(r"samovar join (tcp://\S+) \S+ --invite (\S+)$", founder.stderr.readline())
        assert way is not None
        late = Live(tmp_path, "join", way[1], task, "--invite", way[2], "--run", "late", run="late")
        late.until(lambda: [*(tmp_path / "late").glob("peer-*.jsonl")], "its records")
        late.signal(signal.SIGINT)
        ended = late.end()
        founder.kill()
    assert ended.code == 130, ended.err
    again = "to join again, give the same command and another --run"
    assert ended.out.splitlines() == [f"stopped: this peer has left before its first round; {again}"]


def test_ctrl_c_under_the_launcher_ends_the_scripts_in_good_order(tmp_path: Path) -> None:
    run = Live(tmp_path, "train", script(tmp_path, "while True: step()"), *TRAIN, "--json")
    run.until(lambda: run.rounds() >= 3, "round 3")
    named = {Path(f"/proc/{peer.pid}/comm").read_text().strip() for peer in run.peers().values()}
    assert named == {"samovar peer-0", "samovar peer-1"}, "by which a user kills one of them"
    run.signal(signal.SIGINT)
    ended = run.end()
    assert (ended.code, ended.left) == (130, []), ended.err
    assert ended.result["rounds"] >= 3
    assert (ended.result["ended_by"], ended.result["ended_why"]) == (None, "stopped by its user")
    assert "Traceback" not in "".join(log.read_text() for log in (tmp_path / "run").glob("*.log"))
    assert ended.err.splitlines()[-1].startswith("stopped; a script goes on from checkpoints of its own")


def test_data_loader_workers_take_no_part(tmp_path: Path) -> None:
    """They are forks of the script: one that ends must not end the peer."""
    body = """
loader = torch.utils.data.DataLoader(torch.randn(32, 3), batch_size=4, num_workers=1)
for _ in range(2):
    for batch in loader: step()
run.leave()"""
    ended = samovar_verb(tmp_path, "train", script(tmp_path, body), *ALONE, "--json")
    assert (ended.code, ended.left) == (0, []), ended.err
    assert [peer["steps"] for peer in ended.result["peers"]] == [16]
