"""What a person sees on a real terminal: lines that can be copied, and no remains of the live table."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import struct
import sys
import termios
import threading
from pathlib import Path
from typing import Any

import pyte
import pytest
from bad_files import INVITE
from live import STEADY, Live, run_here
from nursery import Forked
from tiers import soaked

from samovar.peers.cli.command_line import STOPPED
from samovar.peers.records.units import bytes_text, loss_text, seconds_text

pytestmark = pytest.mark.timeout(90)


class Terminal:
    """``samovar ARGUMENTS`` on a terminal of so many columns; `screen` is what it shows, line by line."""

    def __init__(self, folder: Path, columns: int, *arguments: object) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
        self._screen, self.columns = pyte.Screen(columns, 200), columns
        self._stream, self._ours = pyte.ByteStream(self._screen), ours
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "", "LINES": ""}
        self.process = Forked(
            [sys.executable, "-m", "samovar", *map(str, arguments)],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={name: value for name, value in environment.items() if value},
        )
        os.close(theirs)
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65536)
            except OSError:  # the other side is closed
                data = b""
            with self._changed:
                self._stream.feed(data)
                self._changed.notify_all()
            if not data:
                return

    @property
    def screen(self) -> list[str]:
        return [line.rstrip() for line in self._screen.display]

    def until(self, what: str) -> None:
        """Until the screen shows a match of `what` once its lines are joined as a person who copies them would."""
        with self._changed:
            found = self._changed.wait_for(lambda: re.search(what, "".join(self._screen.display)), 60)
        assert found, self.screen

    def end(self) -> int:
        code = self.process.wait(60)
        self._reader.join(10)
        os.close(self._ours)
        return code


def test_at_80_columns_the_result_has_every_digit_and_unit(tmp_path: Path) -> None:
    task = shutil.copy(STEADY, tmp_path / "steady.py")
    terminal = Terminal(
        tmp_path, 80, "train", task, "--peers", 4, "--steps", 40, "--period", 10, "--run", "run", "--threads", 1
    )
    assert terminal.end() == 0, terminal.screen
    text = "\n".join(terminal.screen)
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    for peer in result["peers"]:
        told = [peer["rounds"], peer["steps"], bytes_text(peer["bytes_sent"]), bytes_text(peer["bytes_received"])]
        told += [bytes_text(peer["bytes_shared"]), seconds_text(peer["compute_s"]), seconds_text(peer["wait_s"])]
        told += [seconds_text(peer["transfer_s"]), loss_text(peer["loss"])]
        rows = [re.split(r" {2,}", line) for line in terminal.screen if line.startswith(f"{peer['peer']}  ")]
        assert [cell for row in rows for cell in row[1:]] == list(map(str, told)), text
    assert "…" not in text


@pytest.mark.parametrize("columns", [80, soaked(200)])
def test_the_join_line_can_be_copied_off_the_screen_and_lets_in(columns: int, tmp_path: Path) -> None:
    task = shutil.copy(STEADY, tmp_path / "steady.py")
    terminal = Terminal(
        tmp_path, columns, "train", task, "--peers", 2, "--steps", 10**6, "--period", 20, "--run", "run", "--threads", 1
    )
    terminal.until(r"round")
    terminal.until(r"--invite [\w-]{60,} ")
    text = "".join(line.ljust(columns) for line in terminal._screen.display)
    copied = re.search(r"samovar join (tcp://\S+) (\S+) --invite ([\w-]+)", text)
    assert copied is not None, terminal.screen
    line = (tmp_path / "run" / "join.txt").read_text().splitlines()[0]
    assert copied.group(3) == line.split()[-1], "every letter of it"
    address, file, invite = copied.groups()
    late = Live(tmp_path, "join", address, file, "--invite", invite, "--run", "late", "--threads", 1, run="late")
    late.until(lambda: late.rounds() > 0, "a round of who has copied it")
    late.signal(signal.SIGINT)
    ended = late.end()
    assert ended.code == STOPPED
    assert ended.out.splitlines()[-1] == "stopped: this peer has left the run"
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == STOPPED
    shown = "\n".join(terminal.screen)
    assert "last event" not in shown, "no dead frame of the table is left"
    assert shown.count("samovar join tcp://") == 1
    assert "report: run/report.html" in shown


SMALL = """
import torch


def model():
    return torch.nn.Linear(2, 1)


def data(part, parts):
    return [torch.ones(4, 2)]


def loss(model, batch):
    return model(batch).mean()
"""


@pytest.mark.parametrize(
    ("settings", "flags", "told"),
    [
        ({}, ("--site", "paris"), True),
        ({"site": "rome", "site_period": 2, "period": "8"}, ("--site", "paris"), False),
        soaked({}, (), False),
    ],
)
def test_a_newcomer_with_a_site_is_told_when_the_run_has_no_site_periods(
    settings: dict[str, Any], flags: tuple[str, ...], told: bool, tmp_path: Path
) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    idle = "--site does nothing: this run was started without --site-period"
    with run_here(tmp_path / "run", **settings) as invitation:
        way = (invitation["address"], "small.py", "--invite", invitation["invite"], "--name", "late")
        terminal = Terminal(tmp_path, 80, "join", *way, *flags, "--run", "late", "--threads", 1)
        terminal.until(idle if told else "getting together|in the first round")
        terminal.process.send_signal(signal.SIGINT)
        assert terminal.end() == STOPPED, terminal.screen
    assert (idle in terminal.screen) == told


def test_a_terminal_shows_where_a_newcomer_knocks_until_it_is_let_in_or_refused(tmp_path: Path) -> None:
    (tmp_path / "small.py").write_text(SMALL)
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unheard.getsockname()[1]}"
        terminal = Terminal(tmp_path, 80, "join", address, "small.py", "--invite", INVITE, "--patience-s", 2)
        terminal.until(f"^joining at {address} ...")
        assert terminal.end() == 2, terminal.screen
    assert terminal.screen[0].startswith(f"samovar: cannot join at {address}: ")
