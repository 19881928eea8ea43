"""Progress: a terminal shows a live table, a program's stdout stays clean, and the terminal comes back as it was."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import math
import os
import pty
import termios
import threading
from collections.abc import Iterator
from typing import TextIO

import pytest
from boards import Clock, committed, happened, terminal, written
from rich.console import Console
from test_command_line import OnTerminal

from samovar.peers.cli.progress import LINE_EVERY_S, Progress
from samovar.peers.records.records import EventRecord


class Watched(io.StringIO):
    """`written` is set once something was written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def flush(self) -> None:
        self.written.set()


HIDE, SHOW, ERASE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


def test_on_a_terminal_the_table_is_live_and_the_cursor_comes_back() -> None:
    console = terminal()
    with Progress(steps=100, console=console, clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    assert progress.mode == "live"
    text = written(console)
    assert text.index(HIDE) < text.index("alice") < text.rindex(SHOW)
    assert HIDE not in text[text.rindex(SHOW) :]
    assert ERASE in text[text.rindex("alice") :]  # to make room for the final table


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_terminal_comes_back_after_an_exception_and_the_last_table_stays(error: type[BaseException]) -> None:
    console = terminal()
    with pytest.raises(error), Progress(steps=100, console=console, clock=Clock()) as progress:  # noqa: PT012
        progress.update(committed("alice", 2))
        raise error
    text = written(console)
    assert HIDE not in text[text.rindex(SHOW) :]
    assert ERASE not in text[text.rindex("alice") :]


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_stdout_stays_clean_unless_a_person_watches_it(
    quiet: bool, json: bool, is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    console = terminal() if is_terminal else Console(file=io.StringIO(), _environ={})
    errors = io.StringIO()
    with Progress(quiet=quiet, json=json, console=console, errors=errors, clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    assert bool(written(console)) == (is_terminal and not quiet and not json)
    assert bool(errors.getvalue()) == ((json or not is_terminal) and not quiet)
    assert capsys.readouterr() == ("", "")


def test_a_piped_stdout_is_no_terminal_even_where_colour_is_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress(clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    out, err = capsys.readouterr()
    assert out == ""
    assert "round 2" in err


def test_lines_come_at_least_two_seconds_apart_and_no_event_is_forgotten() -> None:
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=clock) as progress:
        for number in range(1, 101):
            progress.update(committed("alice", number))
            if number == 50:
                progress.update(happened("alice", "lost", about="bob", why="no heartbeat"))
            clock.now += 0.1
        lines = errors.getvalue().splitlines()
        assert len(lines) == math.ceil(100 * 0.1 / LINE_EVERY_S)
        assert "\x1b" not in errors.getvalue()
        assert sum("bob lost: no heartbeat" in line for line in lines) == 1
        progress.update(happened("alice", "error", why="disk full"))
    assert "alice error: disk full" in errors.getvalue().splitlines()[-1]


NAN = "the loss is not finite any more at local step {}"


def told(*records: EventRecord, error: str = "", by: str = "") -> str:
    """The last line of a run with these events, which `error` ends, or what is told `by` other means."""
    errors = io.StringIO()
    progress = Progress(console=Console(file=io.StringIO()), errors=errors, clock=Clock())
    with contextlib.suppress(ValueError), progress:
        progress.update(committed("alice", 1))
        for record in records:
            progress.update(record)
        if by:
            progress.tells(by)
        if error:
            raise ValueError(error)
    return errors.getvalue().splitlines()[-1]


def test_a_line_tells_of_the_wait_for_others_before_there_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samovar.peers.cli.progress.LINE_EVERY_S", 0.0)
    errors = Watched()
    progress = Progress(json=True, console=terminal(), errors=errors, clock=Clock())
    progress.joins()
    with progress:
        assert errors.written.wait(60)
    assert errors.getvalue() == "0:00   joining the run\n"


def test_who_has_come_is_told_where_a_run_waits_for_others() -> None:
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO(), _environ={}), errors=errors, clock=clock) as progress:
        progress.gathers("1 of 2 workers")
        assert errors.getvalue() == "", "those of one machine come within a moment"
        clock.now += 30.0
        progress.gathers("1 of 2 workers")
        assert errors.getvalue() == "0:30   getting together: 1 of 2 workers\n"


def test_a_terminal_on_stderr_gets_lines_that_are_broken_between_phrases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    errors = OnTerminal()
    with Progress(json=True, console=terminal(), errors=errors, clock=Clock()) as progress:
        progress.update(committed("alice", 2, metrics={"accuracy": 0.5}))
        progress.update(happened("alice", "lost", "bob", why="it has not answered for a long time, and then some"))
    assert errors.getvalue().splitlines() == [
        "0:00   round 2   loss 1.000",
        "accuracy 50.00%   period 10   3 peers",
        "0:00   round 2   loss 1.000",
        "accuracy 50.00%   period 10",
        "2 peers, 1 lost",
        "peer bob lost: it has not answered for a",
        "long time, and then some",
    ]


def test_a_reason_is_told_once_however_many_peers_give_it() -> None:
    own = happened("bob", "error", why=NAN.format(30))
    seen = happened("alice", "left", about="bob", why=NAN.format(30))
    assert told(seen, own).endswith(f"; peer bob left: {NAN.format(30)}")
    assert told(own, seen).endswith(f"; peer bob error: {NAN.format(30)}; peer bob left")
    other = happened("alice", "error", why=NAN.format(31))
    assert told(own, other).endswith(f"; peer bob error: {NAN.format(30)}; peer alice error")
    another = happened("alice", "error", why="disk full")
    assert told(own, another).endswith(f"; peer bob error: {NAN.format(30)}; peer alice error: disk full")


def test_a_reason_that_the_last_line_of_a_failed_run_tells_is_not_told_before() -> None:
    events = [happened(name, "error", why=NAN.format(index)) for index, name in enumerate(("alice", "bob"))]
    last = f"peer bob: {NAN.format(1)}; round 7 is saved"
    for line in (told(*events, error=last), told(*events, by=last)):
        assert line.endswith("; peer alice error; peer bob error")
    seen = happened("alice", "lost", about="bob", why=NAN.format(2))
    assert told(seen, error=last).endswith("; peer bob lost")


def test_one_line_tells_a_few_events_and_counts_the_rest() -> None:
    errors = io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=Clock()) as progress:
        for index in range(1000):
            progress.update(happened(f"p{index}", "joined"))
    assert len(errors.getvalue().splitlines()) == 2
    assert "and 996 more events" in errors.getvalue()
    assert len(errors.getvalue()) < 1000


def test_an_output_that_went_away_does_not_fail_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for errors in (Gone(), closed):
        with Progress(console=Console(file=io.StringIO()), errors=errors, clock=Clock()) as progress:
            progress.update(committed("alice", 1))


@pytest.fixture
def tty() -> Iterator[TextIO]:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as screen, os.fdopen(ours, "rb"):
        yield screen


@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_typed_keys_do_not_mix_into_the_table_and_ctrl_c_goes_on_working(
    tty: TextIO, error: type[BaseException] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda terminal: os.getpgrp())
    before = termios.tcgetattr(tty)
    console = Console(file=tty, force_terminal=True, width=80, height=20, _environ={})
    with contextlib.suppress(RuntimeError, KeyboardInterrupt), Progress(console=console, clock=Clock()):
        changed = before[3] ^ termios.tcgetattr(tty)[3]
        assert changed == termios.ECHO, "Ctrl-C is a signal, and lines are lines, as before"
        if error is not None:
            raise error
    assert termios.tcgetattr(tty) == before


def test_a_process_in_the_background_leaves_the_terminal_alone(tty: TextIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "tcgetpgrp", lambda terminal: os.getpgrp() + 1)
    before = termios.tcgetattr(tty)
    with Progress(console=Console(file=tty, force_terminal=True, width=80, _environ={}), clock=Clock()):
        assert termios.tcgetattr(tty) == before


def test_the_shown_time_is_that_of_the_records_once_a_peer_is_in_the_run() -> None:
    """Starting the processes, and waiting for workers from elsewhere, takes time that no record counts."""
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=clock) as progress:
        clock.now += 30
        progress.update(happened("a", "invite"))
        clock.now += 15
        progress.update(happened("a", "started"))  # at 1 s of its own
        clock.now += 10
        progress.update(happened("b", "started"))
        clock.now += 20
        progress.update(committed("a", 1))
    assert [line.split("  ")[0] for line in errors.getvalue().splitlines()] == ["0:30", "0:01", "0:11", "0:31"]


def test_the_shown_time_of_a_resumed_run_never_goes_back() -> None:
    """Also while its servers wait for workers, which no record counts."""
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=clock) as progress:
        progress.goes_on(60.0, [])
        for _ in range(2):
            clock.now += 15
            progress.gathers("0 of 2 workers")
        progress.update(dataclasses.replace(happened("s", "resumed"), time_s=60.5))
        clock.now += 10
        progress.update(committed("a", 1))
    assert [line.split("  ")[0] for line in errors.getvalue().splitlines()] == ["1:00", "1:00", "1:10"]
