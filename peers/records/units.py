"""Formatting of numbers and names as text, for the terminal and the report."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

from .columns import Noun
from .elsewhere import Elsewhere
from .metrics import Scale, scale_of
from .records import EventRecord
from .result import PeerSummary, Result

if TYPE_CHECKING:
    from ...protocols.conversation import End

T = TypeVar("T")
_CLOCK_FROM_S: Final = 59.95
"""From so many seconds on a time since the run started is written with minutes: '1:00'."""
_BEGINNING_S: Final = 1.0
"""A peer that joined in less time, or was there before, was there from the first record on."""
MOST_NAMED: Final = 3
"""The greatest number of peers that a line names."""
MOST_METRICS: Final = 6
"""Number of a task's metrics that are shown; further ones are in the records only."""


def bytes_text(count: float) -> str:
    """1234567 -> '1.23 MB' (powers of 1000, as links are sold)."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 999.5 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{_three(count)} {unit}"


def seconds_text(seconds: float) -> str:
    """0.0123 -> '12.3 ms', 75 -> '1 min 15 s', 7300 -> '2 h 1 min'; 0 and less -> '0 s'. Raises ValueError for NaN,
    OverflowError for infinity."""
    if seconds < 0.9995:
        return f"{_three(max(0.0, seconds) * 1000)} ms" if seconds > 0 else "0 s"
    if seconds < 59.95:
        return f"{_three(seconds)} s"
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min" if hours else f"{minutes} min {left} s"


def clock_text(seconds: float) -> str:
    """75 -> '1:15', 7300 -> '2:01:40'. Parts of a second are cut off; a negative time counts as 0."""
    minutes, left = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"


def count_text(count: int, noun: str) -> str:
    """'1 peer', '1,024 peers'."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def peers_text(peers: int, servers: int) -> str:
    """The number of peers as text, '5 peers', or, where some of them are servers, '3 workers, 2 servers'."""
    if not servers:
        return count_text(peers, "peer")
    workers = [count_text(peers - servers, "worker")] if peers > servers else []
    return ", ".join([*workers, count_text(servers, "server")])


def lost_text(lost: int, back: int) -> str:
    """The number of peers that were lost as text, with how many of them came back: '3 lost, 2 of them back'; '3 lost'
    if none did."""
    return f"{lost:,} lost" + (f", {back:,} of them back" if back else "")


def peer_label(peer: PeerSummary | Elsewhere) -> str:
    """The peer's name, and its role if it has one: '3 (server)'."""
    return f"{peer.peer} ({peer.role})" if peer.role else peer.peer


def moment_text(seconds: float) -> str:
    """A time since the run started: 9.31 -> '9.31 s', 75 -> '1:15'."""
    return seconds_text(seconds) if seconds < _CLOCK_FROM_S else clock_text(seconds)


def span_text(since_s: float, until_s: float, last_s: float = 0.0) -> str:
    """A span of time since the run started, both its ends in one form: '9.31 s to 12.0 s', '0:52 to 1:02'. `last_s`:
    the end of the last of several spans, which all have one form."""
    text = seconds_text if max(until_s, last_s) < _CLOCK_FROM_S else clock_text
    return f"{text(since_s)} to {text(until_s)}"


def loss_text(loss: float) -> str:
    """A training loss with four significant digits; '-' for NaN, which means not reported; 'not finite' for
    infinity."""
    if math.isnan(loss):
        return "-"
    return f"{loss:#.4g}".rstrip(".") if math.isfinite(loss) else "not finite"


def number_text(value: float) -> str:
    """A number of a conversation's column, without its unit: 4.0 -> '4', 1234567 -> '1,234,567', 0.123456 -> '0.1235'.
    A whole number has all its digits, any other four significant ones."""
    whole = math.isfinite(value) and value == round(value) and abs(value) < 1e15
    return f"{value:,.0f}" if whole else f"{value:.4g}"


def metric_label(name: str) -> str:
    """The label of a metric: its name, safe to show. An evaluated 'loss' is labelled 'evaluated loss', because it is
    not the training loss."""
    return "evaluated loss" if name == "loss" else plain(name, 40)


def metric_text(value: float, scale: Scale) -> str:
    """A metric's value with its unit: '92.22%' for a share, '12.50 ms', '4 patients' for an int; any other number as
    `loss_text` gives it."""
    if scale.unit == "%" and math.isfinite(value):
        return f"{value:.2%}"
    unit = "" if scale.unit == "%" else scale.unit
    number = number_text(value) if isinstance(value, int) else loss_text(value)
    return f"{number} {plain(unit, 12)}".rstrip()


def metric_texts(
    metrics: Mapping[str, float], scales: Mapping[str, str], at: int | None, latest: int, noun: Noun
) -> list[str]:
    """'accuracy 92.22%' for each metric that is shown. If they were measured at an exchange `at` before the `latest`
    one, the last text says so: 'accuracy 92.22% after round 30'."""
    told = [
        f"{metric_label(name)} {metric_text(value, scale_of(name, scales))}"
        for name, value in first_metrics(metrics.items())
    ]
    return [*told[:-1], told[-1] + after_text(at, latest, noun)] if told else []


def after_text(at: int | None, latest: float, noun: Noun) -> str:
    """' after round 30' for a measurement at exchange `at`; '' if that is the latest one, or None."""
    return f" after {noun} {at:,}" if at is not None and at < latest else ""


def whose_model(peer: str) -> list[str]:
    """A phrase that names the peer whose model had a metric, where each peer has its own; none where `peer` is
    "": there is one model."""
    return [f"of peer {plain(peer, 40)}'s model"] if peer else []


def ended_text(result: Result) -> str:
    """Why a run ended, and the goal that it missed: 'ended: the run has come to local step 2,000; the goal rmse <= 0.5
    was not reached'; "": nobody reports why. Without 'ended' where the records have no end."""
    missed = [f"the goal {plain(result.missed)} was not reached"] if result.missed else []
    ended = "ended: " if result.ended_by else ""
    return ended + "; ".join([plain(result.ended_why), *missed]) if result.ended_why else ""


def first_metrics(metrics: Iterable[T]) -> list[T]:
    """The first `MOST_METRICS` metrics, which are the ones that are shown."""
    return [*metrics][:MOST_METRICS]


def stay_text(one: Elsewhere, noun: Noun) -> str:
    """'in 34 rounds from 3.10 s on, a member at the end' for a peer without records here. Times are since those with
    records here entered the run, which a peer that joins does later than those that it finds there. For one that left
    or was lost, the time and the reason stand at the end. A member need not have answered at the end: a run with too
    few peers waits for those that do not, and keeps them as members."""
    end = f"{one.gone} at {moment_text(one.gone_s)}" if one.gone_s is not None else "a member at the end"
    why = f": {plain(one.why)}" if one.why else ""
    since = "the first record here" if one.joined_s < _BEGINNING_S else moment_text(one.joined_s)
    return f"in {count_text(one.exchanges, noun)} from {since} on, {end}{why}"


def left_behind_text(elsewhere: Sequence[Elsewhere], *, resumable: bool) -> str:
    """The line for a run that was stopped here: which of the peers `elsewhere` were its members then, and may train on,
    by at most `MOST_NAMED` names; "": none was. `resumable`: the run can be resumed here, which that of a script
    cannot; the line then adds that it begins without such peers."""
    without = "; a run that is resumed here begins without such peers" if resumable else ""
    return (left := _left_behind(elsewhere)) and f"{left}{without}"


def _left_behind(elsewhere: Iterable[Elsewhere]) -> str:
    there = [plain(one.peer, 40) for one in elsewhere if not one.gone]
    if len(there) > MOST_NAMED:
        there = [*there[:MOST_NAMED], f"{len(there) - MOST_NAMED:,} more"]
    return f"{', '.join(there)} joined from elsewhere and may train on" if there else ""


def after_failure_text(elsewhere: Sequence[Elsewhere], saved: str, role: str = "") -> str:
    """The advice where the part of a run that is on this machine has failed. If some of the peers `elsewhere` may train
    on: how one here comes back to them, then `saved`. Else: `saved` alone, the text on how the run is resumed; "": it
    cannot be. `role`: of all peers here, "server", or "" for peers that train; with "server" only servers elsewhere
    count, because nobody trains on without any."""
    if not (left := _left_behind(one for one in elsewhere if one.role == role or not role)):
        return saved
    verb = ", with serve in place of join" if role else ""
    back = f"{left}: then come back by a line of join.txt in a run folder there{verb}"
    return f"{back}; if nobody does, {saved}" if saved else back


def over_before_text(end: End | None, steps: int | None) -> str:
    """The line for a run that was resumed and had no work left. `end`: why it is over; `steps`: each peer's local
    steps; None: it does not end by them."""
    if end is None or end.by == "steps":
        return f"all {steps or 0:,} steps were taken before; for more give --steps"
    return f"the run was over before: {end.why}; for more give another --{end.by.replace('_', '-')}"


def capital(text: str) -> str:
    """`text` with a capital first letter."""
    return text[:1].upper() + text[1:]


def plain(text: str, most: int = 200) -> str:
    """`text` from another peer, made safe to show: control characters and line breaks are replaced, and it is cut to
    `most` characters."""
    kept = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[: most + 1])
    return kept if len(text) <= most else kept[: most - 1] + "…"


def event_text(event: EventRecord, *, subject: bool = True) -> str:
    """'peer c lost: no heartbeat for 5 s'; with `subject` False 'lost: no heartbeat for 5 s'."""
    name = f"peer {plain(event.subject, 40)} " if subject else ""
    return name + event.event.replace("_", " ") + (f": {plain(event.why)}" if event.why else "")


def _three(value: float) -> str:
    return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}"
