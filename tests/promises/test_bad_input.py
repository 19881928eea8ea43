"""Whatever is wrong: one clear line on stderr, exit code 2, an empty stdout, and nothing left running."""

from __future__ import annotations

import json
import math
import re
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from live import ROOT, STEADY, Ended, Live, children, python, run_here, samovar, verb
from tiers import one_in, soaked

from samovar.__main__ import main
from samovar.peers.checkpoints.checkpoint import load
from samovar.peers.launch.keys import Invite
from samovar.peers.launch.run_folder import kept
from samovar.peers.records.run import read_run
from samovar.peers.settings.settings import Settings
from samovar.protocols.addresses import split_address
from samovar.protocols.wire import frames as wire
from samovar.protocols.zeromq.transport import KeyPair

MODEL = "from torch import nn\ndef model(): return nn.Linear(2, 1)\n"
DATA = "import torch\ndef data(part, parts): return [torch.ones(4, 2)]\n"
LOSS = "def loss(model, batch): return model(batch).square().mean()\n"
FILES = {
    "good.py": MODEL + DATA + LOSS,
    "no_loss.py": MODEL + DATA,
    "no_python.py": MODEL + "def data(part, parts: return 1\n",
    "raises.py": MODEL + DATA + LOSS + "1 / 0\n",
    "lacks.py": "import nobody_has_this\n" + MODEL + DATA + LOSS,
    "judges.py": MODEL + DATA + LOSS + "def evaluate(model): return 1 / 0\n",
    "judges_once.py": MODEL
    + DATA
    + LOSS
    + "CALLS = []\ndef evaluate(model):\n    CALLS.append(0)\n    return 1 / (2 - len(CALLS))\n",
    "grades.py": MODEL + DATA + LOSS + "def evaluate(model): return 'good'\n",
    "talks.py": "print('begun')\n" + MODEL + DATA + LOSS + "def evaluate(model): return print('judging') or 0.5\n",
    "exits.py": MODEL + DATA + LOSS + "raise SystemExit(3)\n",
    "no_batches.py": MODEL + "def data(part, parts): return []\n" + LOSS,
    "diverges.py": MODEL + DATA + "def loss(model, batch): return model(batch).mean() * float('nan')\n",
    "misfit.py": MODEL + DATA + "def loss(model, batch):\n    return model(batch.sum(1)).mean()\n",
    "detached.py": MODEL + DATA + "def loss(model, batch): return model(batch).mean().detach()\n",
    "chained.py": MODEL + DATA + "def loss(model, batch):\n    try: return {}[1]\n"
    "    except KeyError as error: raise TypeError('mine') from error\n",
    "script.py": "import samovar\nmodel = 3\nrun = samovar.join()\n",
    "near.toml": 'seed = 3\nperid = "adaptive"\n',
    "wrong.toml": "peers = 0\n",
    "seeded.toml": "seed = 3\n",
    "groups.toml": 'seed = 3\n[[groups]]\npeers = 2\nlink = "10"\n',
    "no_toml.toml": "peers = \n",
    "key.pub": "a" * 64 + "\n",
    "begun/peer-0.jsonl": "{}\n",
    "begun/settings.json": "{}\n",
}
INVITE = Invite("ab" * 32, "cd" * 16).to_text()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with good and bad files in it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    before = children()  # of tests of other files, which may be ending still
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith(("samovar", "compute"))] == []
    assert [child for child in children() if child not in before] == []


def complaint(result: Result) -> str:
    """The only line that was said."""
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("samovar: "), line
    return line.removeprefix("samovar: ")


REFUSED = [
    ("train nowhere.py", "nowhere.py: no such file"),
    ("train begun", "begun: not a file"),
    ("train no_loss.py", "no_loss.py: a task needs model(), data(), loss(); it has no loss()"),
    ("train no_python.py", "no_python.py, line 3: not Python: "),
    ("train near.toml", "near.toml: neither a task (it has no model(), data(), loss()) nor a script that calls"),
    (
        "train good.py --peers 0",
        "--peers must be a whole number from 1 to 10000, got 0",
    ),
    ("train good.py --peers 1025", "--peers must be at most 1024, all named in one message, got 1025"),
    ("train good.py --peers two", "invalid value for '--peers': 'two' is not a valid integer; see samovar train"),
    ("train good.py --peers", "option '--peers' requires an argument"),
    ("train good.py --device cuda:99", "--device cuda:99: this machine has no such device; use auto or cpu"),
    ("train good.py --codec top_k:5", "--codec is refused: the codec 'top_k:5' cannot be: "),
    ("train good.py --codec zip", "--codec must be none or one of fp16, "),
    ("train good.py --quorum 5", "--quorum must be at most the number of peers, 4, got 5"),
    ("train good.py --period 0", "--period must be a whole number of local steps from 1 to"),
    ("train good.py --perid 3", "no such option '--perid'; did you mean --period?"),
    ("train good.py --no-reprt", "no such option '--no-reprt'; did you mean --no-report?"),
    ("train good.py --run good.py", "good.py: no run can be kept there: file exists"),
    ("train good.py --run good.py/run", "good.py/run: no run can be kept there: not a directory"),
    ("simulate good.py --run /proc/run", "/proc/run: no run can be kept there: no such file or directory"),
    ("train good.py --schedule rin", "invalid value for '--schedule': 'rin' is not one of 'auto', 'ring', "),
    ("train", "missing argument 'TASK'; see samovar train --help"),
    ("trian good.py", "no such command 'trian'; did you mean train?"),
    ("--verbos", "no such option '--verbos'; did you mean --version?"),
    ("train good.py --config near.toml", 'near.toml, line 2: unknown key "perid"; did you mean "period"?'),
    (
        "train good.py --config wrong.toml",
        "wrong.toml, line 1: peers must be a whole number from 1 to 10000",
    ),
    ("train good.py --config no_toml.toml", "no_toml.toml, line 1: not TOML: "),
    ("train good.py --config nowhere.toml", "nowhere.toml: cannot be read: no such file or directory"),
    ("train good.py --listen here", "--listen must be an address such as tcp://*:4000, "),
    (
        "train good.py --link 10",
        "--link must be BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as 10mbit,40ms",
    ),
    ("train good.py --link -1mbit,1ms", "--link must be BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as"),
    ("train good.py --config groups.toml", "groups.toml, line 4: link: '10' is no link: write BANDWIDTH,LATENCY"),
    ("train good.py --config groups.toml --peers 3", "--peers: the groups in groups.toml say it: leave out one of"),
    (f"join tcp://h:4 good.py --invite {INVITE} --link fast", "--link must be BANDWIDTH,LATENCY or BANDWIDTH,LATE"),
    ("train good.py --key nowhere", "cannot read key file nowhere: no such file or directory"),
    ("train good.py --key key.pub", "key.pub is the public half of a key: give the .key file"),
    ("train good.py --authorized nowhere", "cannot read list of keys nowhere: no such file or directory"),
    ("train good.py --run begun", "begun holds a run already; choose another --run, or go on with --resume begun"),
    ("train good.py --resume nowhere", "nowhere: nothing to resume, there is no such folder"),
    ("train good.py --resume empty", "empty: nothing to resume, it has no settings.json"),
    ("train script.py --epochs 3", "script.py is a training script: leave out --epochs: a script ends where its own"),
    (
        "train script.py --seed 3",
        "script.py is a training script: leave out --seed: a script seeds its own generators, by torch.manual_seed; "
        "arguments of its own go after --",
    ),
    ("train script.py --steps 9", "script.py is a training script: leave out --steps: a script takes as many steps"),
    ("train script.py --config seeded.toml", "script.py is a training script: leave out --seed: a script seeds its"),
    ("train good.py --resume begun", "these settings lack peers: is it the same version of Samovar"),
    ("train good.py extra", "good.py: a task's own arguments go after --: extra; see samovar train --help"),
    ("simulate good.py extra", "good.py: a task's own arguments go after --: extra; see samovar simulate --help"),
    ("train script.py --resume begun", "script.py: a script keeps its own checkpoints, --resume is for tasks"),
    (
        "simulate good.py --peers 0",
        "--peers must be a whole number from 1 to 10000, got 0",
    ),
    ("simulate good.py --link fast", "--link must be BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as"),
    ("simulate script.py", "script.py: this is a training script, and here a task is due, with model(), "),
    ("simulate raises.py", "raises.py, line 6: cannot be imported: ZeroDivisionError: division by zero"),
    ("simulate exits.py", "exits.py, line 6: cannot be imported: SystemExit: 3"),
    (
        "simulate lacks.py",
        "lacks.py, line 1: cannot be imported: ModuleNotFoundError: No module named 'nobody_has_",
    ),
    ("simulate judges.py --quiet", "in evaluate(): judges.py, line 6: ZeroDivisionError: division by zero"),
    (
        "simulate grades.py --quiet",
        "grades.py: evaluate() returned 'good'; a number, or a dict of numbers by name, is due",
    ),
    ("simulate no_batches.py --quiet", "no_batches.py: data(0, 4) gives no batches"),
    (
        "simulate diverges.py --quiet",
        "the loss of the first batch is not finite: look into data(), model() and loss()",
    ),
    ("simulate misfit.py --quiet", "misfit.py, line 6: RuntimeError: "),
    ("simulate detached.py --quiet", "detached.py: what loss() returned does not depend on the model: was it"),
    ("simulate chained.py --quiet", "chained.py, line 7: TypeError: mine (from KeyError: 1)"),
    ("report nowhere", "nowhere: not a run folder, it has neither peer-*.jsonl nor result.json"),
    (f"join here good.py --invite {INVITE}", "'here' is no address: write tcp://HOST:PORT, e.g. tcp://"),
    (f"join tcp://here good.py --invite {INVITE}", "'tcp://here' is no address: write tcp://HOST:PORT, e.g. "),
    (f"join tcp://h:x good.py --invite {INVITE}", "'tcp://h:x' has no usable port: it is a number from 0 to "),
    (f"join tcp://h:0 good.py --invite {INVITE}", "'tcp://h:0' names no one machine and port to call"),
    (f"join tcp://*:4 good.py --invite {INVITE}", "'tcp://*:4' names no one machine and port to call"),
    (f"join tcp://h:4 good.py --invite {INVITE[:-1]}", "this invite is damaged: copy the whole join line"),
    (
        "train good.py --site a,a,b,b",
        "--site must be the name of a site, without a comma, or several with semicolons",
    ),
    (f"join tcp://h:4 good.py --invite {INVITE} --site a;b", "--site is of one peer here, got several: 'a;b'"),
    (
        f"join tcp://h:4 good.py --invite {INVITE} --link 1mbit,5ms;9mbit,1ms",
        "--link is of one peer here, got several: '1mbit,5ms;9mbit,1ms'",
    ),
    (f"join tcp://h:4 good.py --invite {INVITE} --name {'n' * 65}", "--name must be 1 to 64 printable characters"),
    (f"join tcp://h:4 good.py --invite {INVITE} --name a\x07", "--name must be 1 to 64 printable characters, got"),
    ("join tcp://h:4 good.py", "say how to get in: --invite TEXT, or --key FILE and --peer-key KEY, or --insecure"),
    (f"join tcp://h:4 good.py --invite {INVITE} --steps 9", "no such option '--steps'; "),
    (f"join tcp://h:4 script.py --invite {INVITE} --json", "script.py is a training script: leave out --json: a scri"),
    (f"join tcp://h:4 script.py --invite {INVITE} --device cpu", "script.py is a training script: leave out --device"),
    (f"join tcp://h:4 script.py --invite {INVITE} 3", "script.py: a task's own arguments go after --: 3; see samovar "),
    ("join tcp://h:4 script.py", "say how to get in: --invite TEXT, or --key FILE and --peer-key KEY, or --insecure"),
]


@pytest.mark.parametrize(("arguments", "said"), one_in(4, REFUSED))
@pytest.mark.parametrize("as_json", [False, soaked(True)], ids=["", "json"])
def test_bad_arguments_are_one_line_and_exit_code_2(folder: Path, arguments: str, said: str, as_json: bool) -> None:
    """Also with --json: then stdout is empty, and stderr says the same."""
    words = arguments.split()
    takes_json = words[0] in ("train", "simulate", "report", "join") and words[-1] != "--peers"
    result = verb(*words, *(["--json"] if as_json and takes_json else []))
    assert complaint(result).startswith(said)


BAD = {
    "peers": [0, -1, 10**7],
    "period": [0, -1, 10**9, "abc", "", "8.0", "٣", "adaptiv"],
    "period-initial": [0, 257],
    "period-block-s": [0, -2.0, math.nan, math.inf, 1e7],
    "steps": [0, -1, 10**13],
    "seed": [-1, 2**63],
    "device": ["", "gpu", "cuda:", "cuda:-1", "cpu,", ",cpu", "cuda:1000"],
    "threads": [-1, 1025],
    "patience-s": [0, -5, math.nan, math.inf, 86_401],
    "quorum": [0, -1, 10**4],
    "codec": ["zip", "top_k:5", "power_sgd:0"],
    "outer": ["nesterof", "momentum:x", "adam:0"],
    "evaluate-every": [0, -1],
    "checkpoint-every-s": [-1, math.nan, 1e10],
    "link": ["", "fast", "10mbit", "0mbit,1ms", "1mbit,1", "1mbit,1ms;;1mbit,1ms"],
    "norm-limit": [0, -1.0, math.nan],
}
"""Of settings, what none of them may be."""
TRAIN_ONLY = {"device", "threads", "checkpoint-every-s", "norm-limit"}


@given(st.sampled_from([(name, value) for name, values in BAD.items() for value in values]), st.data())
@examples(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_refused_setting_is_one_line_with_its_place_and_nothing_is_made(
    folder: Path, bad: tuple[str, object], data: st.DataObject
) -> None:
    """As a flag, and as a key of a file after any number of other lines."""
    name, value = bad
    way = "train" if name in TRAIN_ONLY else data.draw(st.sampled_from(["train", "simulate"]))
    before, json_too = sorted(folder.rglob("*")), data.draw(st.sampled_from([[], ["--json"]]))
    if data.draw(st.booleans()):
        result, place = verb(way, "good.py", f"--{name}={value}", *json_too), f"--{name}"
    else:
        lines = data.draw(st.integers(0, 5))
        text = "\n" * lines + f"{name} = {json.dumps(value).replace('NaN', 'nan').replace('Infinity', 'inf')}\n"
        (folder / "near.toml").write_text(text, "utf-8")
        result, place = verb(way, "good.py", "--config", "near.toml", *json_too), f"near.toml, line {lines + 1}: "
    said = complaint(result)
    assert said.startswith(place), (bad, said)
    assert name.replace("-", "_") in said.replace("-", "_")
    assert len(said) < 450
    assert sorted(folder.rglob("*")) == before


def test_the_command_alone_shows_its_verbs() -> None:
    result = verb()
    assert (result.exit_code, result.stderr) == (0, "")
    assert "samovar train TASK --peers 4" in result.stdout


def test_a_run_that_never_began_leaves_its_folder_free(folder: Path) -> None:
    assert "cannot be imported" in complaint(verb("simulate", "raises.py", "--run", "mine"))
    (folder / "mine").mkdir()
    (folder / "mine" / "peer-0.jsonl").touch()  # as a spawned peer leaves it
    assert verb("simulate", "good.py", "--run", "mine", "--peers", 2, "--steps", 20, "--quiet").exit_code == 0


def test_a_run_that_still_goes_on_is_not_resumed(folder: Path) -> None:
    settings = Settings(run="mine", steps=20)
    (folder / "mine/checkpoint").mkdir(parents=True)
    (folder / "mine/checkpoint/peer-0.safetensors").touch()
    (folder / "mine/settings.json").write_text(settings.to_json())
    with kept(folder / "mine"):
        said = complaint(verb("train", "good.py", "--resume", "mine", "--steps", 40))
    assert said == "mine: this run still goes on, in another process: stop that one first"
    assert Settings.from_json((folder / "mine/settings.json").read_text()) == settings


# What only shows when there is a run


def wrong_secret(here: dict[str, Any]) -> list[str]:
    return ["--invite", Invite.to(Invite.from_text(here["invite"]).contact).to_text()]


def wrong_contact(here: dict[str, Any]) -> list[str]:
    return ["--invite", Invite(KeyPair.new().public, Invite.from_text(here["invite"]).secret).to_text()]


def wrong_key(here: dict[str, Any]) -> list[str]:
    assert verb("keys", "own").exit_code == 0
    return ["--key", "own.key", "--peer-key", Invite.from_text(here["invite"]).contact]


def without_encryption(here: dict[str, Any]) -> list[str]:
    return ["--insecure", "--peer-key", Invite.from_text(here["invite"]).contact]


UNKNOWN = "not heard of for 1 s: it refused our key; the run does not know this key, or its invite was revoked"


def test_an_invite_may_come_from_stdin_a_file_or_a_variable(folder: Path) -> None:
    """Where others on the machine do not see it in the list of processes; here it is damaged."""
    (folder / "invite.txt").write_text(INVITE[:-1] + "\n")
    task = [str(folder / "good.py")]
    for arguments, way in (
        (["--invite", "-"], {"input": INVITE[:-1] + "\n"}),
        (["--invite", str(folder / "invite.txt")], {}),
        ([], {"env": {"SAMOVAR_INVITE": INVITE[:-1]}}),
    ):
        ended = CliRunner().invoke(main, ["join", "tcp://h:4", *task, *arguments], **way)  # type: ignore[arg-type]
        assert ended.exit_code == 2
        assert "this invite is damaged" in ended.stderr


ANOTHER_RUN = "another run than that of this join line is there now, or only one side is --insecure"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (wrong_secret, UNKNOWN),
        soaked(wrong_key, UNKNOWN),
        soaked(wrong_contact, f"{ANOTHER_RUN} .*; ask there for its present join line"),
        (without_encryption, f"{ANOTHER_RUN} .*; ask there for its present join line"),
    ],
)
def test_a_joiner_with_a_wrong_key_is_told_so(folder: Path, way: Callable[..., list[str]], said: str) -> None:
    with run_here(folder / "here") as here:
        result = verb("join", here["address"], "good.py", *way(here), "--patience-s", 1, "--run", "there", "--json")
        assert re.match(rf"cannot join at {here['address']}: {said}", complaint(result))
    assert not (folder / "there").exists()


def test_an_address_where_no_peer_listens_cannot_be_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unheard.getsockname()[1]}"
        said = complaint(verb("join", address, "good.py", "--invite", INVITE, "--patience-s", 0.5))
        assert said == (
            f"cannot join at {address}: not heard of for 0.5 s: nobody listens; "
            "is the run still there? Ask for its present join line"
        )
        unheard.listen()
        monkeypatch.setattr("samovar.peers.launch.join_target._TRY_FOR", 2)
        said = complaint(verb("join", address, "good.py", "--invite", INVITE, "--patience-s", 0.5))
        assert said.startswith(f"cannot join at {address}: not heard of for 0.5 s: it is there, but does not answer")
        assert "try again" in said
        assert "firewall" not in said


def test_a_host_that_has_no_address_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_knows(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    said = complaint(verb("join", "tcp://teapot.invalid:4", "good.py", "--invite", INVITE, "--patience-s", 0.5))
    assert "a host of the name teapot.invalid is not known here; look at how it is spelt" in said


def test_a_newcomer_with_another_layout_is_refused_and_the_run_goes_on(folder: Path) -> None:
    (folder / "other.py").write_text(FILES["good.py"].replace("Linear(2, 1)", "Linear(2, 3)"))
    join = ["--run", "there", "--name", "other", "--quiet"]
    with run_here(folder / "here") as here:
        way = ["join", here["address"], "other.py", "--invite", here["invite"], *join]
        for _ in range(2):  # and who is refused may try again, in the same folder
            assert complaint(verb(*way)) == (
                "the models have different layouts: 9 elements in 2 tensors (peer other), "
                "3 elements in 2 tensors (peer 0); is it the same script?"
            )
    assert {event.event for event in read_run(folder / "here").events} == {"started"}


def test_ctrl_c_ends_a_newcomer_that_waits_for_an_answer(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        run = Live(folder, "join", address, "good.py", "--invite", INVITE, "--patience-s", 10_000, "--json")
        call, _ = silent.accept()
        with call:
            run.signal(signal.SIGINT)
            ended = run.end()
    assert (ended.code, ended.out, ended.left) == (130, "", [])
    assert ended.err == "stopped before this peer was in the run; to join again, give the same command\n"


OTHER_VERSION = """
import samovar.protocols.wire.frames as wire
wire.VERSION += 1
from samovar.__main__ import main
main()
"""


def test_a_peer_of_another_protocol_version_is_told_to_install_the_same(folder: Path) -> None:
    with run_here(folder / "here") as here:
        way = ["join", here["address"], "good.py", "--invite", here["invite"], "--json"]
        done = python("-c", OTHER_VERSION, *way)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == (
        f"samovar: cannot join at {here['address']}: speaks protocol version {wire.VERSION}, this side speaks "
        f"{wire.VERSION + 1}; "
        "install the same samovar on both sides\n"
    )


# What only shows in processes of their own


def failed(ended: Ended) -> str:
    assert (ended.code, ended.out, ended.left) == (2, "", []), ended.err
    return ended.complaint.removeprefix("samovar: ")


def test_a_port_in_use_is_told_with_advice(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        said = f"cannot listen on {listen}: the port is in use; choose another with --listen"
        ended = samovar(folder, "train", "good.py", "--peers", 1, "--listen", listen, "--json")
        assert failed(ended) == f"peer 0: {said}"
        with run_here(folder / "here") as here:
            way = ["join", here["address"], "good.py", "--invite", here["invite"], "--listen", listen]
            assert complaint(verb(*way)) == said


def test_a_task_that_fails_in_the_peers_is_one_line(folder: Path) -> None:
    ended = samovar(folder, "train", "raises.py", "--peers", 2, "--json")
    assert re.fullmatch(r"peer \d: raises\.py, line 6: cannot be imported: ZeroDivisionError: .*", failed(ended))


def test_a_task_that_cannot_judge_its_model_says_so_before_anything_is_trained(folder: Path) -> None:
    ended = samovar(folder, "train", "judges.py", "--peers", 2, "--json")
    assert re.fullmatch(
        r"peer 0: in evaluate\(\): judges\.py, line 6: ZeroDivisionError: division by zero; see runs/\S+/peer-0\.log",
        failed(ended),
    )
    assert not any(file.stat().st_size for file in (folder / "runs/judges-001").glob("peer-*.jsonl")), "no record"


def test_a_task_that_cannot_judge_its_model_later_ends_the_run_and_costs_no_other_peer(folder: Path) -> None:
    """After some rounds, where a peer that fails alone would be done without."""
    ended = samovar(folder, "train", "judges_once.py", *"--peers 2 --period 1 --evaluate-every 5 --json".split())
    assert re.fullmatch(
        r"peer (\d): in evaluate\(\): judges_once\.py, line \d: ZeroDivisionError: division by zero; "
        r"see runs/\S+/peer-\1\.log; "
        r"round \d+ is saved, go on with: samovar train judges_once\.py --resume runs/judges_once-001",
        failed(ended),
    )
    assert (folder / "runs/judges_once-001/checkpoint/peer-1.safetensors").exists(), "it stopped in good order"


def test_the_prints_of_a_task_are_no_part_of_the_json(folder: Path) -> None:
    told = verb("simulate", "talks.py", "--peers", 2, "--steps", 20, "--period", 10, "--json")
    assert json.loads(told.stdout)["accuracy"] == 0.5
    assert "begun\n" in told.stderr
    assert "judging\n" in told.stderr


def test_a_loss_that_becomes_nan_ends_the_run(folder: Path) -> None:
    ended = samovar(folder, "train", "diverges.py", "--peers", 2, "--period", 3, "--json")
    assert re.fullmatch(
        r"peer \d: the loss of the first batch is not finite: look into data\(\), model\(\) and loss\(\)",
        failed(ended),
    )


def test_on_a_full_disk_the_run_goes_on_and_the_checkpoint_before_still_loads(tmp_path: Path) -> None:
    task = ROOT / "tests/support/tasks/large.py"
    run = Live(tmp_path, "train", task, *"--peers 1 --period 4 --steps 100000 --checkpoint-every-s 0".split(),
               *"--run run --no-report --json".split())  # fmt: skip
    file = tmp_path / "run/checkpoint/peer-0.safetensors"
    run.until(file.exists, "a checkpoint")
    # A file that may not grow beyond this is what a full disk is for a checkpoint, but not for the records.
    run.peers()["0"].rlimit(psutil.RLIMIT_FSIZE, (300_000, 300_000))
    records = tmp_path / "run/peer-0.jsonl"
    run.until(lambda: "checkpoint_failed" in records.read_text(), "a checkpoint that fails")
    rounds = records.read_text().count('"round":')
    run.until(lambda: records.read_text().count('"round":') > rounds, "another round")
    run.process.send_signal(signal.SIGINT)
    assert "file too large; the previous checkpoint is untouched" in records.read_text()
    first = run.end()
    assert list(file.parent.iterdir()) == [file]
    step = load(file).numbers["state"]["step"]
    resumed = samovar(tmp_path, "train", task, "--resume", "run", "--steps", step + 8, "--json")
    assert resumed.code == 0, resumed.err
    assert resumed.result["rounds"] >= (step + 8) / 4
    assert resumed.result["wall_s"] > first.result["wall_s"], "its time is that of both sessions"


def test_500_silent_connections_do_not_stop_a_run(tmp_path: Path) -> None:
    run = Live(tmp_path, "train", STEADY, *"--peers 2 --period 8 --steps 100000 --run run --no-report --json".split())
    assert run.process.stderr is not None
    way = re.search(r"(tcp://\S+) \S+ (--invite) (\S+)", run.process.stderr.readline())
    assert way is not None
    run.until(lambda: run.rounds() >= 3, "round 3")
    silent = [socket.create_connection(split_address(way[1])) for _ in range(500)]
    try:
        passed = run.rounds()
        run.until(lambda: run.rounds() >= passed + 10, "10 rounds beside them")
        assert verb("doctor", *way.groups()).exit_code == 0, "a command that has something to say is still heard"
        run.signal(signal.SIGINT)
        ended = run.end()
    finally:
        for connection in silent:
            connection.close()
    assert (ended.code, ended.left) == (130, []), ended.err
    assert ended.result["lost"] == []
    assert {row["members"] for row in run.records() if row["kind"] == "round"} == {2}
