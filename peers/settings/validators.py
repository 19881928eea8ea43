"""The rules for settings. A rule checks a value and returns its normal form. It raises ValueError for an invalid
value."""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from ...aggregation.codecs.codec import Codec
from ...aggregation.codecs.registry import CODECS, parse_codec
from ...aggregation.goals import parse_goal
from ...aggregation.options import spelled
from ...aggregation.outer import OUTER_STEPS, parse_outer
from ...aggregation.periods.fixed import Fixed
from ...aggregation.periods.policy import PERIOD_LIMIT
from ...aggregation.periods.registry import PERIODS, parse_period
from ...aggregation.schedules.registry import SCHEDULES
from ...protocols.limits import PEERS_MAX
from ..reasons import article

T = TypeVar("T")

_ARGUMENTS_MAX = 4096


@dataclass(frozen=True, slots=True)
class Parsed(Generic[T]):
    """The object that a setting's text stands for, e.g. a codec. `text`: the text in its normal form; `value`: the
    object. Two are equal if their texts are."""

    text: str
    value: T = field(compare=False, repr=False)


Value = int | float | str | bool | Parsed[Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """The rule of one setting. `take`: checks a value and returns its normal form, or raises ValueError (an
    `OptionError` if the text names something known whose options are wrong); `said`: the valid values, in words that
    follow "must be" in an error; `metavar`: the word for the value in a usage line; `kind`: the type of the flag's
    value; `choices`: all valid values, if they are listed."""

    take: Callable[[object], Value]
    said: str
    metavar: str
    kind: type[int | float | str | bool]
    choices: tuple[str, ...] = ()


def whole(low: int, high: int, metavar: str = "N") -> Rule:
    """The rule for an integer from `low` to `high`, both included; a bool is invalid."""

    def take(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Rule(take, f"a whole number from {low} to {high}", metavar, int)


def peers() -> Rule:
    """The rule for the number of peers of a run: from 1 to the most that any membership holds."""
    return whole(1, PEERS_MAX)


def seconds(high: float, *, zero: bool = False) -> Rule:
    """The rule for a number of seconds above 0 (with `zero`: or 0) and at most `high`. Its value is a float."""

    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
            raise ValueError
        if value == 0 and not zero:
            raise ValueError
        return math.fabs(value)

    least = "at least 0" if zero else "above 0"
    return Rule(take, f"a number of seconds, {least} and at most {high:g}", "S", float)


def times(low: float, high: float) -> Rule:
    """The rule for a number from `low` to `high`, both included. Its value is a float."""

    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Rule(take, f"a number from {low:g} to {high:g}", "TIMES", float)


def share() -> Rule:
    """The rule for a share of a whole: a number from 0, included, to 1, excluded. Its value is a float."""

    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError
        return math.fabs(value)

    return Rule(take, "a number from 0 up to, but not, 1", "SHARE", float)


def flag() -> Rule:
    """The rule for a bool; a number or a text is invalid."""

    def take(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Rule(take, "true or false", "", bool)


def text(said: str, metavar: str, pattern: str) -> Rule:
    """The rule for text that matches the regular expression `pattern` as a whole; it stays as it is. `said`: the valid
    values, in words for an error; `metavar`: the word for the value in a usage line."""

    def take(value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
            raise ValueError
        return value

    return Rule(take, said, metavar, str)


def one_of(*choices: str) -> Rule:
    """The rule for one of the texts `choices`. The value is the choice, which may be given with dashes for
    underscores."""

    def take(value: object) -> str:
        if not isinstance(value, str) or spelled(value) not in choices:
            raise ValueError
        return spelled(value)

    said = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    metavar = "|".join(choices)
    return Rule(take, said, metavar if len(metavar) < 24 else f"{choices[0]}|NAME", str, choices)


def file(what: str, metavar: str = "FILE") -> Rule:
    """The rule for the path of a file, a str or a path object; its value is a str. Whether the file exists isn't
    checked. `what`: the file, in words for an error."""
    rule = text(f"the path of {what}", metavar, r"[^\0]{1,4096}")
    return replace(rule, take=lambda value: rule.take(os.fspath(value) if isinstance(value, os.PathLike) else value))


def parsed(parse: Callable[[str], T], text_of: Callable[[str, T], str] | None = None) -> Callable[[object], Parsed[T]]:
    """The `take` of a rule whose values are texts that `parse` turns into objects. Given a text, it returns a `Parsed`
    with the text's normal form and the object; given a `Parsed`, it returns that. `text_of`: gives the normal form from
    the text and the object; None: `spelled` gives it."""

    def take(value: object) -> Parsed[T]:
        if isinstance(value, Parsed):
            return value
        if not isinstance(value, str):
            raise ValueError
        made = parse(value)
        return Parsed(text_of(value, made) if text_of is not None else spelled(value), made)

    return take


def period() -> Rule:
    """The rule for the number of local steps between two averagings: an integer, or the text of a policy in `PERIODS`
    with its options. Its `take` returns a `Parsed`: its `text` is the normal form, its `value` the policy (`Fixed` for
    an integer)."""

    def text_of(text: str, policy: object) -> str:
        return str(policy.steps) if isinstance(policy, Fixed) else spelled(text.strip())

    def take(value: object) -> Parsed[Any]:
        return by_text(value if isinstance(value, str | Parsed) else str(whole(1, PERIOD_LIMIT).take(value)))

    by_text = parsed(parse_period, text_of)
    names = ", ".join(PERIODS)
    said = (
        f"a whole number of local steps from 1 to {PERIOD_LIMIT}, or one of {names}, with options as in post_local:16"
    )
    return Rule(take, said, "N|POLICY", str)


def codec() -> Rule:
    """The rule for a codec's text with its options, or ``none``. Its `take` returns a `Parsed`: its `text` is the
    normal form, its `value` the codec, or None for ``none``."""

    def parse(text: str) -> Codec | None:
        return None if text == "none" else parse_codec(text)

    said = f"none or one of {', '.join(CODECS)}, with options as in top_k:0.01"
    return Rule(parsed(parse), said, "none|CODEC", str)


def goal() -> Rule:
    """The rule for a metric that a run is to reach, such as ``accuracy >= 0.97``. Its `take` returns a `Parsed`: its
    `text` is the goal in its normal form, its `value` the `Goal`."""
    said = "a metric, one of >=, <=, > and <, and a number, as in 'accuracy >= 0.97'"
    return Rule(parsed(parse_goal, lambda text, made: str(made)), said, "GOAL", str)


def passes() -> Rule:
    """The rule for the number of passes over the training data, from 1e-6 to 1e9; it need not be whole. Its value is a
    float."""
    return replace(times(1e-6, 1e9), metavar="E")


def outer() -> Rule:
    """The rule for the text of an outer step in `OUTER_STEPS`, with its options. Its `take` returns a `Parsed`: its
    `text` is the normal form, its `value` the outer step."""
    said = f"one of {', '.join(OUTER_STEPS)}, with options as in nesterov:0.7:0.9"
    return Rule(parsed(parse_outer), said, "plain|STEP", str)


def schedule() -> Rule:
    """The rule for the name of an allreduce schedule (`SCHEDULES`), or ``auto``. Its `take` returns a `Parsed`: its
    `text` is the name, its `value` the `Schedule`, or None for ``auto``."""
    rule = one_of("auto", *SCHEDULES)
    take = parsed(lambda text: SCHEDULES.get(str(rule.take(text))))
    return Rule(take, rule.said, rule.metavar, str, rule.choices)


def protocol() -> Rule:
    """The rule for a conversation. It takes only a `Spoken`, which `peers.conversations.loading.chosen` finds by the
    conversation's name or the path of its file, and returns it as it is."""

    def take(value: object) -> Parsed[Any]:
        if not isinstance(value, Parsed):
            raise ValueError
        return value

    return Rule(take, "the name of a conversation, or FILE.py with one", "NAME|FILE", str)


def arguments() -> Rule:
    """The rule for the words of a task's own command line: one text, as for a shell, or a list of words. Its value is
    one text, quoted for a shell."""

    def take(value: object) -> str:
        words = shlex.split(value) if isinstance(value, str) else value
        if not isinstance(words, list | tuple) or not all(isinstance(word, str) for word in words):
            raise ValueError
        if len(said := shlex.join(words)) > _ARGUMENTS_MAX or "\0" in said:
            raise ValueError
        return said

    return Rule(take, f"words as in a shell, of at most {_ARGUMENTS_MAX} characters", "WORDS", str)


def devices() -> Rule:
    """The rule for one or more devices, each ``auto``, ``cpu``, ``cuda`` or ``cuda:N``, separated by commas without
    spaces. Whether this machine has them isn't checked. The value stays text."""
    one = r"(auto|cpu|cuda(:\d{1,3})?)"
    said = "auto, cpu, cuda or cuda:N, or several with commas and no spaces, which the peers take in turn"
    return text(said, "DEVICE", rf"{one}(,{one})*")


def sites() -> Rule:
    """The rule for one or more names of sites, of at most 60 characters and without commas, separated by semicolons.
    The value stays text."""
    said = "the name of a site, without a comma, or several with semicolons, which the peers take in turn"
    one = r"[^;,\s\x00-\x1f][^;,\x00-\x1f]{0,59}"  # no comma, the separator elsewhere: "a,a,b,b" is no site
    return text(said, "SITE", rf"{one}(;{one})*")


def shown(value: object) -> str:
    """An invalid value as text for an error: a text in quotes, cut to 60 characters; a bool as in TOML; a number or
    None as in Python; of any other value, or a huge integer, only its kind, as in "a list"."""
    if isinstance(value, str):
        return repr(value[:60])
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return {int: "a huge number", dict: "a table", list: "a list"}.get(type(value), article(type(value).__name__))
