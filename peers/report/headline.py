"""The top of a report, as HTML: the run's name, its headline numbers, why it ended, and its commands. All text from
records is escaped."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

from ..records.metrics import scale_of
from ..records.result import PeerSummary, Result
from ..records.run import Run
from ..records.tally import Tally, elsewhere_in, of_servers
from ..records.units import (
    after_text,
    bytes_text,
    capital,
    count_text,
    ended_text,
    first_metrics,
    loss_text,
    lost_text,
    metric_label,
    metric_text,
    peers_text,
    plain,
    seconds_text,
    whose_model,
)
from .curves import Point
from .overview import Absence
from .tables import safe


def run_name(run: Run) -> str:
    """The name of the run's folder, escaped for HTML."""
    return safe(run.folder.resolve().name)


def tiles(run: Run, peers: Sequence[PeerSummary], points: Sequence[Point], missing: Sequence[Absence]) -> str:
    """The tiles with the headline numbers: metrics, loss, peers, exchanges, bytes and time. For an unfinished run,
    which has no result, they are made from its records."""
    result = run.result
    told = result or Tally(run.exchanges)
    metrics = [
        _tile(metric_label(name), metric_text(value, scale_of(name, _scales(run))), _measured(run, told, name))
        for name, value in first_metrics(told.metrics.items())
    ]
    loss = result.loss if result else (points[-1].value if points else math.nan)
    sent, shared = sum(peer.bytes_sent for peer in peers), sum(peer.bytes_shared for peer in peers)
    more = f"and {bytes_text(shared)} in shared memory" if shared else f"{bytes_text(sent / max(1, len(peers)))} a peer"
    lost, servers = [absence for absence in missing if absence.lost_s], sum(bool(peer.role) for peer in peers)
    back = sum(absence.back for absence in lost)
    away, fate = len(lost) > back, lost_text(len(lost), back) if lost else "none lost"
    most = max((record.members for record in run.exchanges), default=0)
    if most > len(peers):
        at_once = "a round" if run.noun == "round" else "an exchange"
        fate += f"; up to {most:,} in {at_once}: peers elsewhere keep their own records"
    elif there := elsewhere_in(run):
        fate += f"; {len(there):,} more elsewhere"
    trained_s = run.exchanges[-1].time_s if run.exchanges else 0.0
    wall_s = result.wall_s if result else trained_s
    ending = f"{seconds_text(trained_s)} of it after its peers had started" if result else "not finished"
    if result and result.virtual_s is not None:
        ending = f"{seconds_text(result.virtual_s)} of virtual time"
    metrics = metrics or [_tile("Evaluation", "-", "not measured")]
    of_all = run.noun == "round" or len(peers) - servers > 1  # a round's loss is that of peers elsewhere too
    mean = "mean over the peers" if of_all else "of the last exchange"
    metrics += [_tile("Training loss", loss_text(loss), mean, bad=not math.isfinite(loss))]
    return '<div class="tiles">{}</div>'.format(
        "".join(
            (
                *([] if of_servers(peers) else metrics),
                _tile("Peers", peers_text(len(peers), servers) if servers else f"{len(peers):,}", fate, bad=away),
                _tile(capital(f"{run.noun}s"), f"{told.exchanges:,}", _steps_each(run)),
                _tile(f"Sent by {'the peers here' if elsewhere_in(run) else 'all peers'}", bytes_text(sent), more),
                _tile("Wall time", seconds_text(wall_s), ending, bad=result is None),
            )
        )
    )


def _scales(run: Run) -> Mapping[str, str]:
    return run.result.metric_scales if run.result else run.scales


def _measured(run: Run, told: Result | Tally, name: str) -> str:
    """The exchange after which the model had this metric, as text, and the metric's best value if the best model is
    chosen by it and another one than the last."""
    texts = [after_text(told.metrics_at, told.exchanges, run.noun).strip()]
    texts += whose_model(told.metrics_of)
    if run.result and (best := run.result.best) and best.metric == name and best.value != told.metrics[name]:
        scale = scale_of(name, _scales(run))
        word = "best kept" if scale.improves(told.metrics[name], best.value) else "best"
        after = after_text(best.at, math.inf if best.of else told.exchanges, run.noun)
        texts.append(" ".join([word, metric_text(best.value, scale), *whose_model(best.of)]) + after)
    return "; ".join(filter(None, texts))


def ending(run: Run) -> str:
    """A sentence on why the run ended, and on a goal that it missed; "" where nobody reports why."""
    told = ended_text(run.result) if run.result else ""
    return f'<p class="note">{safe(capital(told))}.</p>' if told else ""


def command(run: Run) -> str:
    """The command that repeats the run, without its folder, which can hold no other; those that resumed it; and the
    digest of a simulation, by which a repetition can be compared. "" if none is known."""
    resumed = [("Resumed by", text) for text in dict.fromkeys(run.resumed_by)]
    known = [("Run it again, in a new folder", run.command), *resumed]
    known += [("Digest", run.result.digest or "")] if run.result else []
    rows = [f"<span>{label}</span><code>{_words(plain(text, 2000))}</code>" for label, text in known if text]
    return f'<div class="card command">{"".join(rows)}</div>' if rows else ""


def _words(text: str) -> str:
    """A command as HTML that a line breaks only at its spaces: a browser would break "--steps" within the hyphens."""
    return " ".join(f"<i>{escape(word)}</i>" for word in text.split(" "))


def broken(run: Run) -> str:
    """The promise that did not hold in a simulation, as HTML; "" if all held, and for a run that was no simulation."""
    what = run.scene.broken if run.scene else ""
    return f'<p class="broken"><b>Broken promise</b> {escape(plain(what, 2000))}</p>' if what else ""


def _tile(label: str, value: str, more: str, *, bad: bool = False) -> str:
    mark = ' class="bad"' if bad else ""
    return f'<div class="tile"><span>{safe(label)}</span><b>{safe(value)}</b><span{mark}>{safe(more)}</span></div>'


def _steps_each(run: Run) -> str:
    """The number of local steps between two exchanges of a peer, from the fewest to the most, as text. It mentions
    exchanges without steps, but not those of servers."""
    trained = {record.peer for record in run.exchanges if record.step}
    last: dict[str, tuple[int, int]] = {}
    steps = set[int]()
    for record in run.exchanges:
        version, step = last.get(record.peer, (0, 0))
        if record.version == version + 1 and record.peer in trained:
            steps.add(record.step - step)
        last[record.peer] = record.version, record.step
    none = " or none" if 0 in steps else ""
    if not (steps := steps - {0}):
        return ""
    low, high = min(steps), max(steps)
    told = f"{count_text(low, 'step')} each" if low == high else f"{low:,} to {high:,} steps each"
    return told + none
