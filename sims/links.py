"""Links and what goes wrong on them, and how people write them: ``10mbit,40ms``. Every quantity carries its unit."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSpec:
    """One peer's connection: bytes a second it sends and receives (`down_Bps`: None for the same), one-way latency and
    its jitter in seconds."""

    bandwidth_Bps: float
    latency_s: float
    jitter_s: float = 0.0
    down_Bps: float | None = None

    @property
    def receives_Bps(self) -> float:
        return self.bandwidth_Bps if self.down_Bps is None else self.down_Bps


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """What happens to frames by chance, as probabilities: to be lost, to arrive twice, to be overtaken, to be garbled.

    A garbled frame fails the transport's own check (CURVE's, or TCP's), which breaks the connection: what was under way
    on it is lost, and it is made again.
    """

    loss: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    corrupt: float = 0.0

    def __post_init__(self) -> None:
        for name in ("loss", "duplicate", "reorder", "corrupt"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a probability from 0 to 1, not {getattr(self, name)}")


QUIET = Noise()
_RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "tbit": 1e12 / 8}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_SIZES = {"b": 1.0, "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def parse_link(text: str) -> LinkSpec:
    """``10mbit,40ms`` or ``10mbit,40ms,5ms``: bandwidth, latency, jitter; ``50mbit/10mbit,20ms``: received and sent.

    Raises ValueError that says what is wrong.
    """
    parts = [part.strip() for part in text.lower().split(",")]
    if len(parts) not in (2, 3):
        raise ValueError(f"{text!r} is no link: write BANDWIDTH,LATENCY or BANDWIDTH,LATENCY,JITTER, e.g. 10mbit,40ms")
    rates = [parse_rate(rate) for rate in parts[0].split("/", 1)]
    times = [parse_duration(part) for part in parts[1:]]
    return LinkSpec(
        bandwidth_Bps=rates[-1],
        latency_s=times[0],
        jitter_s=times[1] if len(times) > 1 else 0.0,
        down_Bps=rates[0] if len(rates) > 1 else None,
    )


def parse_rate(text: str) -> float:
    """Bytes a second in ``10mbit``. Raises ValueError that says what is wrong."""
    rate = _quantity(text, _RATES, "a bandwidth", "10mbit")
    if rate == 0:
        raise ValueError(f"a bandwidth of {text!r} carries nothing")
    return rate


def parse_duration(text: str) -> float:
    """Seconds in ``5ms`` or ``2s``. Raises ValueError that says what is wrong."""
    return _quantity(text, _TIMES, "a duration", "5ms")


def parse_size(text: str) -> int:
    """Bytes in ``64KiB`` or ``2MB``. Raises ValueError that says what is wrong."""
    return int(_quantity(text, _SIZES, "a size", "64KiB"))


def _quantity(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.strip().lower())
    if match is None or match[2] not in units:
        raise ValueError(f"{text!r} is not {what}: a number and one of {', '.join(units)}, e.g. {example}")
    return float(match[1]) * units[match[2]]
