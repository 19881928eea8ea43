"""Lines that a command prints on a terminal of 80 columns, and elsewhere."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from samovar.peers.cli.command_line import STOPPED, CommandLine, Verb, between_words, fail
from samovar.peers.cli.output import Output

LONG = "--codec must be none or one of fp16, bf16, int8, qsgd, sign, top_k, random_k, power_sgd, got 'int4'"
COMMAND = "samovar train a-task-with-a-rather-long-name.py --resume runs/a-task-with-a-rather-long-name-001 --steps 9"


class OnTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_a_terminal_gets_lines_that_are_broken_between_two_words() -> None:
    told = between_words(LONG, OnTerminal(), 4)
    first, second = told.splitlines()
    assert len(first) <= 80
    assert second.startswith(" " * 4 + second.strip()[0])
    assert " ".join(told.split()) == LONG


def test_a_command_stays_in_one_piece_to_be_copied() -> None:
    told = between_words(f"round 12 is saved, go on with: {COMMAND}", OnTerminal())
    assert told.splitlines() == ["round 12 is saved, go on with:", COMMAND]


def test_an_error_is_one_line_where_a_program_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(LONG) == 2
    assert capsys.readouterr().err == f"samovar: {LONG}\n"


@pytest.mark.parametrize(("arguments", "told"), [([], "loading PyTorch ...\r\x1b[K"), (["--quiet"], "")])
def test_a_terminal_is_told_that_pytorch_is_loaded_and_nothing_of_it_remains(
    arguments: list[str], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = OnTerminal()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setattr(sys, "argv", ["samovar", "keys", *arguments])
    monkeypatch.setenv("TERM", "xterm")
    group = CommandLine("samovar", verbs={"keys": Verb("samovar.peers.cli.keys", "Make a key pair.")})
    assert group.get_command(click.Context(group), "keys") is not None
    assert errors.getvalue() == told


def test_a_completion_writes_nothing_into_the_line_that_is_being_typed(monkeypatch: pytest.MonkeyPatch) -> None:
    errors = OnTerminal()
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("_SAMOVAR_COMPLETE", "bash_complete")
    group = CommandLine("samovar", verbs={"keys": Verb("samovar.peers.cli.keys", "Make a key pair.")})
    assert group.get_command(click.Context(group), "keys") is not None
    assert errors.getvalue() == ""


def complete(line: str, module: str, monkeypatch: pytest.MonkeyPatch) -> int | str | None:
    """Complete the last word of `line` with a command `keys` in `module`; returns the exit code."""
    monkeypatch.setenv("_SAMOVAR_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(line.count(" ")))
    group = CommandLine("samovar", verbs={"keys": Verb(module, "Make a key pair.")})
    with pytest.raises(SystemExit) as ended:
        group.main(prog_name="samovar")
    return ended.value.code


def test_the_name_of_a_command_is_completed_without_an_import(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert complete("samovar ke", "no.such.module", monkeypatch) == 0
    assert capsys.readouterr().out == "plain,keys\n"


def test_ctrl_c_ends_a_completion_without_a_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(CommandLine, "resolve_command", interrupted)
    assert complete("samovar keys --", "samovar.peers.cli.keys", monkeypatch) == STOPPED


def test_a_line_for_the_user_is_broken_between_words_too(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = OnTerminal()
    monkeypatch.setattr(sys, "stdout", screen)
    said = "the run was over before: no better accuracy for 3 rounds than 97% in round 40; for more give another --stop"
    Output(steps=1, columns={}).say(said)
    assert screen.getvalue().splitlines() == [said[: said.index(" for more")], said[said.index("for more") :]]


def test_a_stop_while_the_command_line_itself_is_imported_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt\n")
    way = {**os.environ, "PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "samovar", "--help"]
    ended = subprocess.run(command, env=way, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (STOPPED, "", "samovar: stopped\n")
