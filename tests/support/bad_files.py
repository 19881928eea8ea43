"""Good and bad task, settings and key files for tests of bad input, and a check that a test leaves nothing behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from live import children

from samovar.peers.launch.keys import Invite

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
    "unnamed": MODEL + DATA + LOSS,
    "exits.py": MODEL + DATA + LOSS + "raise SystemExit(3)\n",
    "no_batches.py": MODEL + "def data(part, parts): return []\n" + LOSS,
    "diverges.py": MODEL + DATA + "def loss(model, batch): return model(batch).mean() * float('nan')\n",
    "misfit.py": MODEL + DATA + "def loss(model, batch):\n    return model(batch.sum(1)).mean()\n",
    "detached.py": MODEL + DATA + "def loss(model, batch): return model(batch).mean().detach()\n",
    "chained.py": MODEL + DATA + "def loss(model, batch):\n    try: return {}[1]\n"
    "    except KeyError as error: raise TypeError('mine') from error\n",
    "starred.py": "from good import *\n",
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


@pytest.fixture(name="folder")
def folder_of_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, with good and bad files in it."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
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
