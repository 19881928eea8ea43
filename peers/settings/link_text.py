"""Links and other quantities as users write them, each with its unit: ``10mbit,40ms``."""

from __future__ import annotations

import re
from decimal import Decimal

from ...protocols.link_spec import LinkSpec

_Units = dict[str, Decimal]
"""Name of a unit -> its size in bytes a second, seconds or bytes. Decimals are exact, so 200us equals 0.0002 s."""
_RATES: _Units = {
    f"{prefix}bit": Decimal(10**digits) / 8 for prefix, digits in zip(("", *"kmgt"), range(0, 15, 3), strict=True)
}
_TIMES: _Units = {"us": Decimal("1e-6"), "ms": Decimal("1e-3"), "s": Decimal(1), "min": Decimal(60), "h": Decimal(3600)}
_SPANS: _Units = {"s": Decimal(1), "m": Decimal(60), "min": Decimal(60), "h": Decimal(3600), "d": Decimal(86_400)}
_BYTES = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZES: _Units = {unit: Decimal(size) for unit, size in _BYTES.items()}
_MOST = 1e15
"""The largest quantity allowed, in seconds, bytes or bytes a second."""


def parse_link(text: str) -> LinkSpec:
    """The link in ``10mbit,40ms`` or ``10mbit,40ms,5ms`` (bandwidth, latency, jitter) or ``50mbit/10mbit,20ms``
    (download and upload bandwidth, latency). Raises ValueError, in one line, for any other text."""
    fields = [field.strip() for field in text.lower().split(",")]
    if len(fields) not in (2, 3):
        raise ValueError(f"{text!r} is no link: write BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, e.g. 10mbit,40ms")
    rates = [parse_rate(rate) for rate in fields[0].split("/", 1)]
    times = [parse_duration(field) for field in fields[1:]]
    return LinkSpec(
        bandwidth_Bps=rates[-1],
        latency_s=times[0],
        jitter_s=times[1] if len(times) > 1 else 0.0,
        down_Bps=rates[0] if len(rates) > 1 else None,
    )


def one_of(kinds: str, index: int) -> str:
    """The link, or the site, of the peer with number `index`. `kinds` has one or more values, separated by semicolons;
    peers get them in order, and after the last one from the first again."""
    each = kinds.split(";")
    return each[index % len(each)].strip()


def parse_rate(text: str) -> float:
    """Bytes a second in a text such as ``10mbit``. Raises ValueError, in one line, for any other text, and for a rate
    of 0."""
    rate = _quantity(text, _RATES, "a bandwidth", "10mbit")
    if rate == 0:
        raise ValueError(f"a bandwidth of {text!r} carries nothing")
    return rate


def parse_duration(text: str) -> float:
    """Seconds in a text such as ``5ms`` or ``2s``. Raises ValueError, in one line, for any other text."""
    return _quantity(text, _TIMES, "a duration", "5ms")


def parse_span(text: str) -> float:
    """Seconds in a text such as ``90s``, ``45m``, ``2h`` or ``7d``. Raises ValueError, in one line, for any other
    text."""
    return _quantity(text, _SPANS, "a span of time", "2h")


def parse_size(text: str) -> int:
    """Bytes in a text such as ``64KiB`` or ``2MB``, rounded down to whole ones. Raises ValueError, in one line, for any
    other text."""
    return int(_quantity(text, _SIZES, "a size", "64KiB"))


def link_text(link: LinkSpec) -> str:
    """The text, as short as that of `rate_text` and `duration_text`, that `parse_link` reads as this exact link."""
    rates = [link.bandwidth_Bps] if link.down_Bps is None else [link.down_Bps, link.bandwidth_Bps]
    times = [link.latency_s, *([link.jitter_s] if link.jitter_s else [])]
    return ",".join(("/".join(map(rate_text, rates)), *map(duration_text, times)))


def rate_text(rate_Bps: float) -> str:
    """A short text that `parse_rate` reads as exactly `rate_Bps` bytes a second: the shortest that does not begin with
    "0."."""
    return _written(rate_Bps, _RATES)


def duration_text(seconds: float) -> str:
    """A short text that `parse_duration` reads as exactly `seconds`: the shortest that does not begin with "0.", as
    500ms."""
    return _written(seconds, _TIMES)


def size_text(size: int) -> str:
    """A short text that `parse_size` reads as exactly `size` bytes: the shortest that does not begin with "0."."""
    return _written(size, _SIZES).upper().replace("I", "i")


def _quantity(text: str, units: _Units, what: str, example: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.strip().lower(), re.ASCII)
    if match is None or match[2] not in units:
        raise ValueError(f"{text[:60]!r} is not {what}: a number and one of {', '.join(units)}, e.g. {example}")
    value = float(Decimal(match[1]) * units[match[2]])
    if value > _MOST:
        raise ValueError(f"{text[:60]!r} is more than any link or run is for")
    return value


def _written(value: float, units: _Units) -> str:
    """`value` in the unit that gives the shortest exact text; a text that begins with "0." only if all do."""
    texts = []
    for name, unit in units.items():
        number = f"{(Decimal(repr(value)) / unit).normalize():f}"
        if float(Decimal(number) * unit) == value:
            texts.append(number + name)
    return min(texts, key=lambda text: (text.startswith("0."), len(text)))
