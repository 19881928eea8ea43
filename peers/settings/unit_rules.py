"""Rules of settings with units or addresses: times, sizes, bandwidths, links, and where peers listen."""

from __future__ import annotations

import re

from ...protocols.addresses import NOWHERE, split_address
from .link_text import parse_rate, parse_size, parse_span
from .validators import Rule, text

_NUMBER = r"\d{1,12}(\.\d{1,12})?"
_TIME = rf"{_NUMBER}(us|ms|s)"
MEASURED = "measured"


def address() -> Rule:
    """The rule for the address at which a peer listens: ``tcp://HOST:PORT`` as text, unchanged; or `NOWHERE`, for a
    peer that only dials."""

    def take(value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        if value == NOWHERE:
            return value
        host, _ = split_address(value)
        if re.fullmatch(r"\*|[\w.-]{1,253}|\[[\w:.%-]{2,100}\]", host, re.ASCII) is None:
            raise ValueError
        return value

    said = f"an address such as tcp://*:4000, tcp://192.0.2.7:0 or tcp://[::1]:4000, or {NOWHERE}: it cannot be dialled"
    return Rule(take, said, "ADDRESS", str)


def host() -> Rule:
    """The rule for the host name or IP address under which other peers dial a peer. No "any" address such as
    0.0.0.0."""
    pattern = r"(?!0\.0\.0\.0$)[A-Za-z0-9_.-]{1,253}|\[(?!::\])[A-Za-z0-9_:.%-]{2,100}\]"
    return text("a host name or an IP address that others can dial, without tcp:// and port", "HOST", pattern)


def link() -> Rule:
    """The rule for one or more link texts, separated by semicolons. The value stays text: `parse_link` reads each."""
    said = (
        "BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, such as 10mbit,40ms, 1gbit,200us,50us or 50mbit/10mbit,20ms, "
        "or several with semicolons, which the peers take in turn"
    )
    rate = rf"(?![0.]+[a-z]){_NUMBER}[kmgt]?bit"
    one = rf" *{rate}( */ *{rate})? *(, *{_TIME} *){{1,2}}"
    return text(said, "LINK", rf"(?i:{one}(;{one})*)")


def span(high_s: float) -> Rule:
    """The rule for a length of time as text, such as ``90s`` or ``2h``, above 0 and at most `high_s` seconds. The value
    stays text."""

    def take(value: object) -> str:
        if not isinstance(value, str) or not 0 < parse_span(value) <= high_s:
            raise ValueError
        return value

    return Rule(take, f"a time above 0 such as 90s, 45m, 2h or 7d, and at most {high_s / 86_400:g}d", "TIME", str)


def rate() -> Rule:
    """The rule for a bandwidth above 0 as text, such as ``10mbit``. The value stays text, without spaces at its
    ends."""

    def take(value: object) -> str:
        if not isinstance(value, str) or parse_rate(value) <= 0:
            raise ValueError
        return value.strip()

    return Rule(take, "a bandwidth above 0 such as 500kbit or 10mbit", "RATE", str)


def size() -> Rule:
    """The rule for a number of bytes above 0 as text, such as ``8GB``. The value stays text, without spaces at its
    ends."""

    def take(value: object) -> str:
        if not isinstance(value, str) or parse_size(value) <= 0:
            raise ValueError
        return value.strip()

    return Rule(take, "a size above 0 such as 500MB, 8GB or 8GiB", "SIZE", str)


def step_time() -> Rule:
    """The rule for the time of a training step: text such as ``2.5ms``, above 0, or `MEASURED`. The value stays
    text."""
    said = f"a time above 0 such as 500us, 2.5ms or 1s, or {MEASURED}"
    return text(said, "TIME", rf"(?![0.]+[a-z]){_TIME}|{MEASURED}")
