"""Wrong arguments and settings are refused in one clear line, with a non-zero exit and nothing left behind."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from bad_files import INVITE, complaint, folder_of_files, nothing_is_left  # noqa: F401
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from live import verb
from tiers import one_in, soaked

from samovar.peers.launch.run_folder import kept
from samovar.peers.run_settings.settings import Settings

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
    (
        "train good.py --key nowhere",
        "cannot read key file nowhere: no such file or directory; make nowhere.key by: ",
    ),
    ("train good.py --key key.pub", "key.pub is the public half of a key: give the .key file"),
    ("train good.py --authorized nowhere", "cannot read list of keys nowhere: no such file or directory"),
    ("train good.py --run begun", "begun holds a run already; choose another --run, or go on with --resume begun"),
    ("train script.py --run begun", "begun holds a run already; choose another --run"),
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
    (
        "train starred.py --steps 9",
        "starred.py: from good import * hides the names of a task: write from good import model, data, loss, and so on",
    ),
    ("simulate script.py", "script.py: this is a training script, and here a task is due, with model(), "),
    ("simulate unnamed", "unnamed: its name has to end in .py, else Python does not import it"),
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
    ("report nowhere", "nowhere: there is no such run folder"),
    ("report .", ".: not a run folder, it has neither peer-*.jsonl nor result.json"),
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
