"""Numbers and names in words, shared by the terminal and the report."""

from __future__ import annotations

import math

from .elsewhere import Elsewhere
from .records import EventRecord


def bytes_text(count: float) -> str:
    """1234567 -> '1.23 MB' (powers of 1000, as links are sold)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{_three(count)} {unit}"


def seconds_text(seconds: float) -> str:
    """0.0123 -> '12.3 ms', 75 -> '1 min 15 s', 7300 -> '2 h 1 min'."""
    if seconds < 0.9995:
        return f"{_three(max(0.0, seconds) * 1000)} ms" if seconds > 0 else "0 s"
    if seconds < 59.95:
        return f"{_three(seconds)} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {left} s"


def clock_text(seconds: float) -> str:
    """75 -> '1:15', 7300 -> '2:01:40'."""
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def count_text(count: int, noun: str) -> str:
    """'1 peer', '1,024 peers'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def moment_text(seconds: float) -> str:
    """A moment in a run: 9.31 -> '9.31 s', from a minute on as a clock shows it."""
    return seconds_text(seconds) if seconds < 59.95 else clock_text(seconds)


def loss_text(loss: float) -> str:
    """Four significant digits; '-' for NaN, a loss that was not reported; 'not finite' for an infinite one."""
    if math.isnan(loss):
        return "-"
    return f"{loss:#.4g}".rstrip(".") if math.isfinite(loss) else "not finite"


def accuracy_text(accuracy: float | None) -> str:
    return "-" if accuracy is None else f"{accuracy:.2%}"


def as_of(round_: int | None, accuracy: float, latest: int) -> str:
    """'92.22%', or where it was measured before the `latest` round, '92.22% after round 30'."""
    earlier = round_ is not None and round_ < latest
    return accuracy_text(accuracy) + (f" after round {round_:,}" if earlier else "")


def stay_text(one: Elsewhere) -> str:
    """'in 34 rounds from 3.10 s on, there at the end', or with the time and the reason of its end."""
    end = f"{one.gone} at {moment_text(one.gone_s)}" if one.gone_s is not None else "there at the end"
    why = f": {plain(one.why)}" if one.why else ""
    return f"in {count_text(one.rounds, 'round')} from {moment_text(one.joined_s)} on, {end}{why}"


def plain(text: str, most: int = 200) -> str:
    """Another peer's text, made safe for a terminal: no control characters or line breaks, at most `most`
    characters."""
    kept = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: most + 1])
    return kept if len(text) <= most else kept[: most - 1] + "…"


def event_text(event: EventRecord, *, subject: bool = True) -> str:
    """'peer c lost: no heartbeat for 5 s'; without its subject 'lost: no heartbeat for 5 s'."""
    name = f"peer {plain(event.subject, 40)} " if subject else ""
    return name + event.event.replace("_", " ") + (f": {plain(event.why)}" if event.why else "")


def _three(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
