"""The table at the end of a run, and its headline."""

from __future__ import annotations

import math
from collections.abc import Set

from rich.console import Group, RenderableType
from rich.table import Column
from rich.text import Text

from ..records.ends import USUAL
from ..records.metrics import scale_of
from ..records.result import PeerSummary, Result
from ..records.tally import of_servers
from ..records.units import (
    after_text,
    bytes_text,
    count_text,
    ended_text,
    loss_text,
    lost_text,
    metric_texts,
    moment_text,
    peer_label,
    peers_text,
    plain,
    seconds_text,
    stay_text,
    whose_model,
)
from .fitting import Folded, Phrases
from .live_table import MOST_ROWS, SLOWEST


def final_table(result: Result) -> RenderableType:
    """The table at the end of a run: its headline, each peer's totals, peers elsewhere, and lost peers."""
    return Group(Phrases(headline(result)), Text(), _peer_table(result), *_elsewhere(result), *_lost(result))


def headline(result: Result) -> list[str]:
    """The result in a few phrases: metrics, loss, rounds, peers, seconds, and why the run ended, unless that is as
    usual."""
    return [
        *metric_texts(result.metrics, result.metric_scales, result.metrics_at, result.exchanges, result.noun),
        *whose_model(result.metrics_of),
        *_best(result),
        *([f"loss {loss_text(result.loss)}"] if not of_servers(result.peers) else []),
        count_text(result.exchanges, result.noun) + _here(result),
        peers_text(len(result.peers), sum(bool(peer.role) for peer in result.peers))
        + ("" if result.virtual_s is not None else " on this machine")
        + (f", {len(result.elsewhere):,} elsewhere" if result.elsewhere else "")
        + (f", {lost_text(len(result.lost), sum(peer.back for peer in result.lost))}" if result.lost else ""),
        f"{seconds_text(result.wall_s)} in all",
        *([f"{seconds_text(result.virtual_s)} of virtual time"] if result.virtual_s is not None else []),
        *_ended(result),
    ]


def _ended(result: Result) -> list[str]:
    """Why the run ended, unless it came to its end as it was meant to."""
    usual = result.ended_by == "steps" or result.ended_why in ("", *USUAL)
    return [ended_text(result)] if result.missed or not usual else []


def _here(result: Result) -> str:
    """', 33 of them here' where the peers with records here took part in a part of the exchanges only, as a newcomer
    does."""
    here = [peer.exchanges for peer in result.peers if not peer.role]
    return f", {max(here):,} of them here" if here and max(here) < result.exchanges else ""


def _best(result: Result) -> list[str]:
    """'best accuracy 93.2% after round 10', for a model other than the last; 'best kept' where the last is better, and
    could not be written. Of peers with models of their own: 'best rmse 0.025 of peer 2's model after exchange 10'."""
    if (best := result.best) is None or best.value == (last := result.metrics.get(best.metric, math.nan)):
        return []
    word = "best kept" if scale_of(best.metric, result.metric_scales).improves(last, best.value) else "best"
    told = metric_texts({best.metric: best.value}, result.metric_scales, None, 0, result.noun)
    after = after_text(best.at, math.inf if best.of else result.exchanges, result.noun)
    return [" ".join([word, *told, *whose_model(best.of)]) + after]


def _peer_table(result: Result) -> Folded:
    more = {name for name in ("bytes_shared", "hidden_s") if any(getattr(peer, name) for peer in result.peers)}
    moved = ("sent", "received", *(["shared"] if "bytes_shared" in more else []))
    spent = ("compute", "wait", "transfer", *(["hidden"] if "hidden_s" in more else []))
    heads = (f"{result.noun}s", "steps", *moved, *spent, "loss")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    names = Column("peer", no_wrap=True, max_width=24)
    table = Folded(names, *numbers)
    shown = result.peers
    if len(shown) > MOST_ROWS:
        shown = tuple(sorted(shown, key=lambda peer: (peer.role, peer.steps))[:SLOWEST])
    for peer in shown:
        table.add_row(Text(plain(peer_label(peer), 40)), *_cells(peer, more))
    if len(shown) < len(result.peers):
        table.add_row(f"+ {len(result.peers) - len(shown):,} more", *[""] * len(heads))
    if len(result.peers) > 1:
        table.add_row(f"all {len(result.peers):,}", *_cells(_sum(result), more), style="bold")
    return table


def _elsewhere(result: Result) -> list[Text]:
    """A line for each peer on another machine, which has its records there."""
    lines = [
        Text(f"elsewhere {plain(peer_label(one), 40)}: {stay_text(one, result.noun)}")
        for one in result.elsewhere[:MOST_ROWS]
    ]
    more = len(result.elsewhere) - len(lines)
    lines += [Text(f"and {more:,} more elsewhere")] if more else []
    return [Text(), *lines] if lines else []


def _lost(result: Result) -> list[Text]:
    lines = [
        Text(
            f"lost {plain(peer.peer, 40)} at {moment_text(peer.when)}{', and back' * peer.back}: {plain(peer.why)}",
            style="" if peer.back else "red",
        )
        for peer in result.lost[:MOST_ROWS]
    ]
    more = len(result.lost) - len(lines)
    lines += [Text(f"and {more:,} more", style="red")] if more else []
    return [Text(), *lines] if lines else []


def _sum(result: Result) -> PeerSummary:
    peers = result.peers
    return PeerSummary(
        peer="",
        steps=sum(peer.steps for peer in peers),
        exchanges=result.exchanges,
        bytes_sent=sum(peer.bytes_sent for peer in peers),
        bytes_received=sum(peer.bytes_received for peer in peers),
        bytes_shared=sum(peer.bytes_shared for peer in peers),
        compute_s=sum(peer.compute_s for peer in peers),
        wait_s=sum(peer.wait_s for peer in peers),
        transfer_s=sum(peer.transfer_s for peer in peers),
        hidden_s=sum(peer.hidden_s for peer in peers),
        loss=result.loss,
    )


def _cells(peer: PeerSummary, more: Set[str]) -> tuple[str, ...]:
    """The cells of a peer's row. `more`: the optional columns that the table has. A server takes no steps, and neither
    waits nor has a loss."""
    if peer.role:
        shared = [bytes_text(peer.bytes_shared)] if "bytes_shared" in more else []
        unused = 4 + ("hidden_s" in more)
        return "-", "-", bytes_text(peer.bytes_sent), bytes_text(peer.bytes_received), *shared, *["-"] * unused
    return (
        f"{peer.exchanges:,}",
        f"{peer.steps:,}",
        bytes_text(peer.bytes_sent),
        bytes_text(peer.bytes_received),
        *([bytes_text(peer.bytes_shared)] if "bytes_shared" in more else []),
        seconds_text(peer.compute_s),
        seconds_text(peer.wait_s),
        seconds_text(peer.transfer_s),
        *([seconds_text(peer.hidden_s)] if "hidden_s" in more else []),
        loss_text(peer.loss),
    )
