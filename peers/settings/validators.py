"""The rules for settings. A rule takes a value, returns its normal form, and raises ValueError on any other value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass

from ...aggregation.codecs.registry import CODECS, parse_codec
from ...aggregation.options import spelled
from ...aggregation.outer import OUTER_STEPS, parse_outer
from ...aggregation.periods.fixed import Fixed
from ...aggregation.periods.policy import PERIOD_LIMIT
from ...aggregation.periods.registry import PERIODS, parse_period
from ...protocols.addresses import split_address
from ...protocols.limits import VIEW_MEMBERS_MAX
from .link_text import parse_size, parse_span

Value = int | float | str | bool


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule. `said` follows "must be" in errors, `metavar` stands for the value in a usage line, `kind` is its
    type."""

    take: Callable[[object], Value]
    said: str
    metavar: str
    kind: type[Value]
    choices: tuple[str, ...] = ()


def whole(low: int, high: int, metavar: str = "N") -> Rule:
    def take(value: object) -> int:
        if type(value) is not int or not low <= value <= high:
            raise ValueError
        return value

    return Rule(take, f"a whole number from {low} to {high}", metavar, int)


def peers() -> Rule:
    """How many peers a run may have."""
    rule = whole(1, VIEW_MEMBERS_MAX)
    return Rule(rule.take, f"{rule.said}, all named in one message", rule.metavar, rule.kind)


def seconds(high: float, *, zero: bool = False) -> Rule:
    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= high:
            raise ValueError
        if value == 0 and not zero:
            raise ValueError
        return math.fabs(value)

    least = "at least 0" if zero else "above 0"
    return Rule(take, f"a number of seconds, {least} and at most {high:g}", "S", float)


def times(low: float, high: float) -> Rule:
    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError
        return float(value)

    return Rule(take, f"a number from {low:g} to {high:g}", "TIMES", float)


def share() -> Rule:
    def take(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
            raise ValueError
        return math.fabs(value)

    return Rule(take, "a number from 0 up to, but not, 1", "SHARE", float)


def flag() -> Rule:
    def take(value: object) -> bool:
        if not isinstance(value, bool):
            raise ValueError
        return value

    return Rule(take, "true or false", "", bool)


def text(said: str, metavar: str, pattern: str) -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.DOTALL) is None:
            raise ValueError
        return value

    return Rule(take, said, metavar, str)


def one_of(*choices: str) -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str) or spelled(value) not in choices:
            raise ValueError
        return spelled(value)

    said = " or ".join(filter(None, [", ".join(choices[:-1]), choices[-1]]))
    metavar = "|".join(choices)
    return Rule(take, said, metavar if len(metavar) < 24 else f"{choices[0]}|NAME", str, choices)


def file(what: str, metavar: str = "FILE") -> Rule:
    return text(f"the path of {what}", metavar, r"[^\0]{1,4096}")


def period() -> Rule:
    def take(value: object) -> str:
        asked = value.strip() if isinstance(value, str) else str(whole(1, PERIOD_LIMIT).take(value))
        policy = parse_period(asked)
        return str(policy.steps) if isinstance(policy, Fixed) else spelled(asked)

    names = ", ".join(PERIODS)
    said = (
        f"a whole number of local steps from 1 to {PERIOD_LIMIT}, or one of {names}, with options as in post_local:16"
    )
    return Rule(take, said, "N|POLICY", str)


def codec() -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        if value != "none":
            parse_codec(value)
        return spelled(value)

    return Rule(take, f"none or one of {', '.join(CODECS)}, with options as in top_k:0.01", "none|CODEC", str)


def outer() -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        parse_outer(value)
        return spelled(value)

    return Rule(take, f"one of {', '.join(OUTER_STEPS)}, with options as in nesterov:0.7:0.9", "plain|STEP", str)


def address() -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        host, _ = split_address(value)
        if re.fullmatch(r"\*|[\w.-]{1,253}|\[[\w:.%-]{2,100}\]", host, re.ASCII) is None:
            raise ValueError
        return value

    return Rule(take, "an address such as tcp://*:4000, tcp://192.0.2.7:0 or tcp://[::1]:4000", "ADDRESS", str)


def host() -> Rule:
    pattern = r"(?!0\.0\.0\.0$)[A-Za-z0-9_.-]{1,253}|\[(?!::\])[A-Za-z0-9_:.%-]{2,100}\]"
    return text("a host name or an IP address that others can dial, without tcp:// and port", "HOST", pattern)


def devices() -> Rule:
    one = r"(auto|cpu|cuda(:\d{1,3})?)"
    said = "auto, cpu, cuda or cuda:N, or several with commas and no spaces, which the peers take in turn"
    return text(said, "DEVICE", rf"{one}(,{one})*")


_NUMBER = r"\d{1,12}(\.\d{1,12})?"
_TIME = rf"{_NUMBER}(us|ms|s)"


def link() -> Rule:
    said = (
        "BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as 10mbit,40ms, 1gbit,200us,50us or 50mbit/10mbit,20ms, "
        "or several with semicolons, which the peers take in turn"
    )
    rate = rf"(?![0.]+[a-z]){_NUMBER}[kmgt]?bit"
    one = rf" *{rate}( */ *{rate})? *(, *{_TIME} *){{1,2}}"
    return text(said, "LINK", rf"(?i:{one}(;{one})*)")


def sites() -> Rule:
    said = "the name of a site, without a comma, or several with semicolons, which the peers take in turn"
    one = r"[^;,\s\x00-\x1f][^;,\x00-\x1f]{0,59}"  # no comma, the separator elsewhere: "a,a,b,b" is no site
    return text(said, "SITE", rf"{one}(;{one})*")


def span(high_s: float) -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str) or not 0 < parse_span(value) <= high_s:
            raise ValueError
        return value

    return Rule(take, f"a time above 0 such as 90s, 45m, 2h or 7d, and at most {high_s / 86_400:g}d", "TIME", str)


def size() -> Rule:
    def take(value: object) -> str:
        if not isinstance(value, str) or parse_size(value) <= 0:
            raise ValueError
        return value.strip()

    return Rule(take, "a size above 0 such as 500MB, 8GB or 8GiB", "SIZE", str)


MEASURED = "measured"


def step_time() -> Rule:
    said = f"a time above 0 such as 500us, 2.5ms or 1s, or {MEASURED}"
    return text(said, "TIME", rf"(?![0.]+[a-z]){_TIME}|{MEASURED}")


def shown(value: object) -> str:
    """An invalid value, shortened for an error."""
    if isinstance(value, str):
        return ascii(value[:60])
    if value is None or isinstance(value, bool | float) or (isinstance(value, int) and abs(value) < 2**64):
        return str(value).lower() if isinstance(value, bool) else str(value)
    return {int: "a huge number", dict: "a table", list: "a list"}.get(type(value), f"a {type(value).__name__}")
