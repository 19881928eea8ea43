"""The tables of a report, as HTML: missing peers, standstills, totals of each peer, and events. All text from records
is escaped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from ..records.result import PeerSummary
from ..records.run import Run
from ..records.tally import elsewhere_in
from ..records.units import (
    bytes_text,
    capital,
    loss_text,
    moment_text,
    peer_label,
    plain,
    seconds_text,
    stay_text,
)
from .gantt import PHASE_INK
from .overview import Absence, Standstill
from .timeline import PHASES

_BAD: Final = ("lost", "stalled", "error", "checkpoint_failed", "records_failed", "refused")
"""Events that are shown in the colour of errors."""
MOST_EVENTS: Final = 500
MOST_PEERS: Final = 2000


def shares(run: Run, peers: Sequence[PeerSummary]) -> str:
    """A sentence with the share of each phase in all peers' time, "" if no time was spent; and one with the peer that
    was waited for longest, if there is one."""
    spent = [sum(getattr(peer, f"{phase}_s") for peer in peers) for phase in PHASES]
    if not sum(spent):
        return ""
    compute, wait, transfer, evaluate = (f"{phase / sum(spent):.0%}" for phase in spent)
    told = f"Of the peers' time {compute} was compute, {wait} waiting for other peers or for messages, "
    told += f"{transfer} transfer and {evaluate} evaluation." if spent[-1] else f"and {transfer} transfer."
    if hidden := sum(peer.hidden_s for peer in peers):
        told += f" Averaging went on for {seconds_text(hidden)} behind local steps."
    return told + _longest_awaited(run)


def _longest_awaited(run: Run) -> str:
    waited, evaluated = defaultdict[str, float](float), defaultdict[str, float](float)
    for record in run.exchanges:
        if record.waited_for != record.peer:  # a worker may wait until the servers have its own push
            waited[record.waited_for] += record.wait_s
            evaluated[record.waited_for] += record.evaluation_wait_s
    most = max((name for name in waited if name), key=lambda name: waited[name], default="")
    if not most or not waited[most]:
        return ""
    evaluates = f", {seconds_text(evaluated[most])} of it while it evaluated"
    told = f" They waited longest for peer {safe(most)}: {seconds_text(waited[most])} in all"
    return f"{told}{evaluates if evaluated[most] else ''}."


def missing_table(run: Run, missing: Sequence[Absence]) -> str:
    """The table of the peers that were lost or missed exchanges, or a sentence if there are none. The column "Rounds
    without it" is left out where exchanges are not rounds, "What to do" where nothing can be done."""
    rounds, advised = run.noun == "round", any(absence.advice for absence in missing)
    if not missing:
        return f'<p class="note">No peer was lost, and no {run.noun} had to do without one.</p>'
    body = (
        [
            _cell(absence.peer, "text name"),
            _cell(absence.address or "-", "text"),
            _cell(", ".join(map(moment_text, absence.lost_s)) or "-", "bad" if absence.lost_s else ""),
            *([_cell(f"{absence.missed:,}")] if rounds else []),
            _cell("yes" if absence.back else "no", "text"),
            _cell(absence.why or "-", "text wide"),
            *([_cell(absence.advice or "-", "text wide")] if advised else []),
        ]
        for absence in missing[:MOST_PEERS]
    )
    missed, advice = ["Rounds without it"] if rounds else [], ["*What to do"] if advised else []
    return _table(("*Peer", "*Address", "Lost at", *missed, "*Came back", "*Why", *advice), body)


def standstill_table(found: Sequence[Standstill]) -> str:
    """The table of the stalled peers, with its heading; "" when no peer stalled."""
    if not found:
        return ""
    body = (
        [
            _cell(one.peer, "text name"),
            _cell(moment_text(one.since_s)),
            _cell(one.end or "did not end", "text" if one.end else "text bad"),
            _cell(one.why, "text wide"),
        ]
        for one in found[:MOST_EVENTS]
    )
    table = _table(("*Peer", "Told at", "*Then", "*What took so long"), body)
    return f"<h2>Waited for</h2>{table}{_cut(len(found), MOST_EVENTS, 'standstills')}"


def peer_table(run: Run, peers: Sequence[PeerSummary]) -> str:
    """The table of each peer's totals, as HTML. Each of the columns for bytes in shared memory, bytes of the model that
    were averaged, time of evaluations and time hidden behind local steps is left out where all of its values are 0. A
    server averages nothing."""
    shared, hidden = any(peer.bytes_shared for peer in peers), any(peer.hidden_s for peer in peers)
    averaged = any(peer.model_bytes for peer in peers if not peer.role)
    phases = PHASES if any(peer.evaluate_s for peer in peers) else PHASES[:-1]
    body = (
        [
            _cell(peer_label(peer), "text name"),
            _cell("-" if peer.role else f"{peer.exchanges:,}"),
            _cell("-" if peer.role else f"{peer.steps:,}"),
            _cell(bytes_text(peer.bytes_sent)),
            _cell(bytes_text(peer.bytes_received)),
            *([_cell(bytes_text(peer.bytes_shared))] if shared else []),
            *([_cell("-" if peer.role else bytes_text(peer.model_bytes))] if averaged else []),
            *(_cell("-" if peer.role else seconds_text(getattr(peer, f"{phase}_s"))) for phase in phases),
            *([_cell("-" if peer.role else seconds_text(peer.hidden_s))] if hidden else []),
            f"<td>{_share_bar(peer)}</td>",
            _cell(loss_text(peer.loss) if peer.exchanges and not peer.role else "-"),
        ]
        for peer in peers[:MOST_PEERS]
    )
    moved = ("Sent", "Received", *(["Shared"] if shared else []), *(["Averaged"] if averaged else []))
    spent = (*(phase.capitalize() for phase in phases), *(["Hidden"] if hidden else []))
    heads = ("*Peer", capital(f"{run.noun}s"), "Local steps", *moved, *spent, "*Time", "Last loss")
    notes = ["Shared: in memory that peers on one machine share."] if shared else []
    notes += ["Averaged: bytes of the model, before a codec made them fewer."] if averaged else []
    told = f'<p class="note">{" ".join(notes)}</p>' if notes else ""
    return told + _table(heads, body) + _cut(len(peers), MOST_PEERS, "peers")


def elsewhere_table(run: Run) -> str:
    """The table of the peers on other machines, with its heading; "" when there are none."""
    found = elsewhere_in(run)
    if not found:
        return ""
    told = ((peer_label(one), stay_text(one, run.noun)) for one in found[:MOST_PEERS])
    body = ([_cell(name, "text name"), _cell(stay, "text wide")] for name, stay in told)
    table = _table(("*Peer", "*As the peers here saw it"), body)
    return f"<h3>From elsewhere</h3>{table}{_cut(len(found), MOST_PEERS, 'peers')}"


def event_table(run: Run) -> str:
    """The table of the events, the first `MOST_EVENTS` of them, in a block that the reader unfolds; "" when there are
    none."""
    if not run.events:
        return ""
    body = (
        [
            _cell(moment_text(event.time_s)),
            _cell(event.event.replace("_", " "), "text bad" if event.event in _BAD else "text"),
            _cell(event.subject, "text name"),
            _cell(event.peer, "text name"),
            _cell(event.why, "text wide"),
        ]
        for event in run.events[:MOST_EVENTS]
    )
    table = _table(("Time", "*Event", "*Peer", "*Told by", "*Why"), body) + _cut(len(run.events), MOST_EVENTS, "events")
    return f'<h2>Events</h2><details class="card"><summary>{len(run.events):,} events</summary>{table}</details>'


def _share_bar(peer: PeerSummary) -> str:
    spent = [max(0.0, getattr(peer, f"{phase}_s")) for phase in PHASES]
    whole = sum(spent) or 1.0
    bars = (
        f'<i style="width:{100 * phase / whole:.1f}%;background:{PHASE_INK[name]}"></i>'
        for name, phase in zip(PHASES, spent, strict=True)
    )
    return f'<div class="share">{"".join(bars)}</div>'


def _table(heads: Iterable[str], body: Iterable[Sequence[str]]) -> str:
    """A table that scrolls in its own box. A heading that starts with '*' is aligned left, over text; others stand over
    numbers."""
    first = "".join(f'<th class="text">{head[1:]}</th>' if head[0] == "*" else f"<th>{head}</th>" for head in heads)
    rest = "".join(f"<tr>{''.join(cells)}</tr>" for cells in body)
    return f'<div class="card scroll"><table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table></div>'


def _cell(text: str, kind: str = "") -> str:
    return f'<td class="{kind}">{safe(text)}</td>' if kind else f"<td>{safe(text)}</td>"


def _cut(count: int, most: int, what: str) -> str:
    return f'<p class="note">The first {most:,} of {count:,} {what}.</p>' if count > most else ""


def safe(text: str) -> str:
    """Text from a record, for HTML: escaped, safe to show (`plain`), and cut to 400 characters."""
    return escape(plain(text, 400))
