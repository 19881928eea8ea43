"""Keyword arguments of Python functions are the declared settings, typed, documented, and named in messages."""

from __future__ import annotations

import dataclasses
import inspect
import pydoc
import re
import types
import typing
from pathlib import Path
from typing import Any, Literal

import pytest

import samovar
from samovar.peers.conversations.loading import loaded
from samovar.peers.conversations.registry import CONVERSATIONS
from samovar.peers.run_settings.settings import Settings, of_tasks
from samovar.peers.settings.fields import SettingsError
from samovar.peers.settings.in_python import in_python, python_words
from samovar.peers.settings.keywords import AllSettings, JoinSettings, PathText, SimulateSettings, TrainSettings
from samovar.peers.settings.names import fields_of

FIELDS = {name: field for one in reversed(CONVERSATIONS) for name, field in fields_of(loaded(one)).items()}
"""The settings of the library's conversations; of two with one name that of local SGD."""
ENDS = ("samples", "epochs", "stop", "stop_patience")
"""A script decides its end itself."""


def declared(field: dataclasses.Field[Any]) -> Any:
    """The annotation that a setting's rule asks for."""
    rule = field.metadata["rule"]
    kind: Any = rule.kind
    if rule.choices and rule.metavar == "|".join(rule.choices):
        kind = Literal[tuple(sorted(rule.choices))]  # type: ignore[valid-type]
    for other, value in ((PathText, Path("file")), (int | str, 3)):
        if rule.kind is str and takes(rule, value):
            kind = other
    return kind | None if field.default is None else kind


def takes(rule: Any, value: object) -> bool:
    try:
        rule.take(value)
    except ValueError:
        return False
    return True


def in_order(hint: Any) -> Any:
    return Literal[tuple(sorted(typing.get_args(hint)))] if typing.get_origin(hint) is Literal else hint


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (TrainSettings, {name for name, field in FIELDS.items() if "train" in field.metadata["verbs"]}),
        (SimulateSettings, {name for name, field in FIELDS.items() if "simulate" in field.metadata["verbs"]}),
        (JoinSettings, {name for name in FIELDS if not of_tasks({name: 1}) and name not in ("step_time", *ENDS)}),
        (AllSettings, {*FIELDS}),
    ],
)
def test_the_typed_keywords_are_the_declared_settings(kind: type, names: set[str]) -> None:
    hints = typing.get_type_hints(kind)
    assert {*hints} == names
    assert not kind.__required_keys__  # type: ignore[attr-defined]
    for name, hint in hints.items():
        assert in_order(hint) == declared(FIELDS[name]), name


@pytest.mark.parametrize(
    ("function", "kind"),
    [
        (samovar.train, "TrainSettings"),
        (samovar.simulate, "SimulateSettings"),
        (samovar.join, "JoinSettings"),
        (samovar.Settings.__init__, "AllSettings"),
    ],
)
def test_each_function_takes_the_settings_by_keyword(function: types.FunctionType, kind: str) -> None:
    *_, last = inspect.signature(function).parameters.values()
    assert (last.kind, last.annotation) == (inspect.Parameter.VAR_KEYWORD, f"Unpack[{kind}]")


def test_help_tells_each_setting_with_its_default_and_range() -> None:
    told = pydoc.render_doc(samovar.Settings, renderer=pydoc.plaintext)
    for protocol in CONVERSATIONS:
        assert f"Settings of protocol={protocol!r}:" in told
        for name, field in fields_of(Settings(protocol=protocol).protocol).items():
            assert f"{name} = {field.default!r}" in told
            assert python_words(f"It must be {field.metadata['rule'].said}").split()[3] in told
    assert not re.findall(r"--[a-z]\S*", told), "arguments, not flags"
    assert "Local steps between two averages. It must be a whole number" in told


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ("allow fewer with --quorum 1", "allow fewer with quorum=1"),
        ("leave out --outer, --fragments", "leave out outer, fragments"),
        ("give --key FILE and --peer-key KEY", "give key=FILE and peer_key=KEY"),
        ("go on with --resume runs/x-001", "go on with resume='runs/x-001'"),
        ("--report must be true or false, got 1", "report must be True or False, got 1"),
        ("--peers must be a whole number, got true", "peers must be a whole number, got True"),
        ("a.toml, line 3: report must be true or false, got 1", "a.toml, line 3: report must be true or false, got 1"),
        ("--no-report is given", "report=False is given"),
        ("known are a ... (samovar train --help tells all)", "known are a ... (help(samovar.Settings) tells all)"),
        ("make one with samovar invite runs/x --new", "make one with samovar invite runs/x --new"),
        (
            "arguments must be the run's, '--lr 1 --width 4', got '--lr 2'",
            "arguments must be the run's, '--lr 1 --width 4', got '--lr 2'",
        ),
        ("samovar serve digits.py --resume runs/x", "samovar serve digits.py --resume runs/x"),
        ("samovar train a.py --link 1mbit,9ms --no-report", "samovar train a.py --link 1mbit,9ms --no-report"),
        ("a dash - and -- two, x--y", "a dash - and -- two, x--y"),
    ],
)
def test_a_message_names_arguments_in_place_of_flags(told: str, said: str) -> None:
    assert python_words(told) == said
    error = SettingsError(told, "name")
    with pytest.raises(SettingsError) as raised, in_python():
        raise error
    assert str(raised.value) == f"name {said}"


def test_a_path_is_taken_where_a_file_is_asked_for() -> None:
    assert Settings(run=Path("runs/mine")).run == "runs/mine"
    with pytest.raises(SettingsError, match="codec must be none or one of"):
        Settings(codec=Path("int8"))  # type: ignore[arg-type]
