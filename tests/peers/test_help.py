"""``--help``: what a beginner needs comes first, every option has a line of its own, in a group by its purpose."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from completion_table import page as completion_table
from live import ROOT

from samovar.__main__ import main
from samovar.peers.cli.completion import TABLE, known
from samovar.peers.cli.flags import GROUPS, GroupedCommand
from samovar.peers.conversations.local_sgd_settings import LocalSGDSettings
from samovar.peers.conversations.parameter_server_settings import ParameterServerSettings
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.names import fields_of

VERBS = {
    "train": "samovar.peers.cli.train",
    "join": "samovar.peers.cli.join",
    "doctor": "samovar.peers.cli.doctor",
    "serve": "samovar.peers.cli.serve",
    "simulate": "samovar.sims.cli",
}


def verb(name: str) -> GroupedCommand:
    command = getattr(import_module(VERBS[name]), name)
    assert isinstance(command, GroupedCommand)
    return command


@pytest.mark.parametrize("name", VERBS)
def test_every_option_is_in_a_named_group_and_the_help_tells_each_in_a_line_of_80_columns(name: str) -> None:
    command = verb(name)
    with click.Context(command, info_name=name) as context:
        groups = command.groups(context)
        every = [option for option in command.get_params(context) if isinstance(option, click.Option)]
    options = [option for option in every if not option.hidden]
    assert [option.opts[-1] for option in groups.pop("Help")] == ["--help"]
    own = ParameterServerSettings if name == "serve" else LocalSGDSettings
    assert set(groups) <= {"To begin with", *GROUPS, *own.groups}
    told = CliRunner().invoke(command, ["--help"], terminal_width=78, prog_name=name).output  # click leaves two free
    rows = told[told.index("To begin with:") :].splitlines()
    assert all(len(row) <= 78 for row in rows)
    assert not [row for row in rows if row.startswith("   ")], "no option takes two lines"
    assert sum(row.startswith("  ") for row in rows) == len(options)


def test_the_help_of_the_command_line_fits_80_columns() -> None:
    told = CliRunner().invoke(main, [], terminal_width=80).output
    assert "samovar join ADDRESS TASK" in told
    assert max(map(len, told.splitlines())) <= 80


def test_the_help_of_train_begins_with_the_six_options_of_a_first_run() -> None:
    command = verb("train")
    with click.Context(command) as context:
        title, options = next(iter(command.groups(context).items()))
    assert title == "To begin with"
    assert [option.opts[0] for option in options] == ["--peers", "--steps", "--period", "--device", "--run", "--resume"]


def test_the_help_of_join_is_of_one_peer_and_only_there_a_peer_may_listen_nowhere() -> None:
    told = {name: CliRunner().invoke(verb(name), ["--help"], terminal_width=80).output for name in ("train", "join")}
    rows = {name: {row.split()[0]: row for row in text.splitlines() if "  --" in row} for name, text in told.items()}
    assert "--listen ADDRESS  " in rows["train"]["--listen"]
    assert "none" not in rows["train"]["--listen"]
    assert "none: dial only" in rows["join"]["--listen"]
    for flag in ("--link", "--site", "--threads"):
        assert "peer" in rows["train"][flag]
        assert "peer" not in rows["join"][flag]


def completed(line: str) -> list[str]:
    """What a shell is told to offer for the last word of a command line."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1), "_SAMOVAR_COMPLETE": "bash_complete"}
    told = CliRunner().invoke(main, [], prog_name="samovar", env=words)
    assert told.exit_code == 0, told.output
    return [row.partition(",")[2] for row in told.stdout.splitlines()]


def test_a_shell_completes_commands_settings_and_values_those_of_the_chosen_conversation() -> None:
    """By the line of the page on runs."""
    told = CliRunner().invoke(main, [], prog_name="samovar", env={"_SAMOVAR_COMPLETE": "bash_source"})
    assert "complete -o nosort -F _samovar_completion samovar" in told.stdout
    page = (ROOT / "docs" / "runs.md").read_text("utf-8")
    assert 'eval "$(_SAMOVAR_COMPLETE=bash_source samovar)"' in page
    assert completed("samovar tr") == ["train"]
    assert completed("samovar train --per") == ["--period", "--period-initial", "--period-block-s"]
    assert completed("samovar train --inner ") == ["kept", "averaged", "reset"]
    assert completed("samovar train task.py --protocol gossip --to") == ["--topology"]
    flags = {f"--{name.replace('_', '-')}" for name, field in fields_of(Settings().protocol).items()
             if "train" in field.metadata["verbs"]}  # fmt: skip
    assert flags <= {*completed("samovar train --")}


def test_the_table_for_completions_has_the_parameters_of_every_command() -> None:
    assert TABLE.read_text("utf-8") == completion_table(), "python tests/support/completion_table.py makes it anew"


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("samovar train --per", "plain,--period\nplain,--period-initial\nplain,--period-block-s\n"),
        ("samovar simulate --protocol gossip --to", "plain,--topology\n"),
        ("samovar train --inner ", "plain,kept\nplain,averaged\nplain,reset\n"),
        ("samovar train dig", "file,dig\n"),
        ("samovar report --j", "plain,--json\n"),
        ("samovar serve --cop", "plain,--copies\n"),
    ],
)
def test_flags_values_and_paths_are_completed_without_pytorch(line: str, offered: str) -> None:
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); " + (
        "import samovar.__main__ as it; it.main(prog_name='samovar')"
    )
    words = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_SAMOVAR_COMPLETE": "bash_complete"}
    told = subprocess.run([sys.executable, "-c", code], env={**os.environ, **words}, capture_output=True, check=True)
    assert told.stdout.decode() == f"{offered}False\n"


@pytest.mark.parametrize(
    ("verb", "missing"),
    [
        ("report", "RUN"),
        ("train", "TASK"),
        ("join", "ADDRESS"),
        ("keys", "NAME"),
        ("serve", "[ADDRESS] TASK [ARGUMENTS]..."),
    ],
)
def test_a_missing_argument_is_told_without_pytorch(verb: str, missing: str) -> None:
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); " + (
        f"import samovar.__main__ as it; it.main(['{verb}'], prog_name='samovar')"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    line = f"samovar: missing argument '{missing}'; see samovar {verb} --help\n"
    assert (told.returncode, told.stdout, told.stderr) == (2, "False\n", line)


def test_a_key_is_made_without_pytorch_and_an_error_of_it_is_one_line(tmp_path: Path) -> None:
    code = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules)); " + (
        "import samovar.__main__ as it; it.main(['keys', 'w1'], prog_name='samovar')"
    )
    told = [
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
        for _ in range(2)
    ]
    public = (tmp_path / "w1.pub").read_text().strip()
    made = f"public key: {public}\nsecret key: w1.key (only you can read it)\nFalse\n"
    assert [(one.returncode, one.stdout) for one in told] == [(0, made), (2, "False\n")]
    line = "samovar: w1.key exists already, and a key is never overwritten: choose another name\n"
    assert [one.stderr for one in told] == ["", line]


def test_the_flags_of_a_conversation_of_ones_own_are_not_those_of_another() -> None:
    assert known("train", ["task.py", "--protocol", "gossip"]) is not None
    assert known("train", ["task.py", "--protocol", "mine.py"]) is None, "the command itself completes it"


def test_an_option_of_no_group_is_told_all_the_same() -> None:
    odd = click.Option(["--odd"], help="Nobody foresaw it.")
    command = GroupedCommand("some", first=("known",), params=[click.Option(["--known"]), odd])
    told = CliRunner().invoke(command, ["--help"]).output
    assert "--odd" in told[told.index("Help:") :]


def test_the_help_of_join_tells_that_the_protocol_is_the_runs() -> None:
    told = {name: CliRunner().invoke(verb(name), ["--help"]).output for name in ("train", "join")}
    assert "[default: the run's]" in told["join"]
    assert "[default: allreduce]" not in told["join"]
    assert "[default: allreduce]" in told["train"]
