"""The cells of a peer's row in the live table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.console import RenderableType
from rich.progress_bar import ProgressBar
from rich.text import Text

from ..records.units import bytes_text, loss_text, number_text, plain
from .live_columns import with_own
from .peer_state import PeerState

INK: Final[Mapping[str, str]] = {
    "training": "green",
    "done": "green",
    "missing": "yellow",
    "lost": "red",
    "stalled": "red",
    "waiting": "yellow",
    "asleep": "yellow",
    "catching up": "yellow",
    "silent": "red",
    "error": "red",
}


def cells(peer: PeerState, own: Sequence[str], steps: int) -> dict[str, RenderableType]:
    """The cells of a peer's row, by column. `own`: the conversation's columns; `steps`: local steps that each peer is
    to take, 0: unknown."""
    told: dict[str, RenderableType] = {
        "peer": Text(plain(peer.name, 40)),
        "state": Text(peer.shown_state, style=INK.get(peer.state, "")),
        "last event": Text(peer.event, style="dim"),
    }
    if not peer.tells:
        return dict.fromkeys(with_own(own), "-") | {"": ""} | told
    counted = peer.version or peer.bytes_sent or peer.bytes_received
    told |= {
        **{name: number_text(peer.details[name]) if name in peer.details else "-" for name in own},
        "out": bytes_text(peer.bytes_sent) if counted else "-",
        "in": bytes_text(peer.bytes_received) if counted else "-",
    }
    if peer.role:
        return told | dict.fromkeys(("steps/s", "step", "loss"), "-") | {"": ""}
    return told | {
        "steps/s": f"{peer.steps_per_s:,.1f}" if peer.version else "-",
        "step": "-" if peer.state == "catching up" else f"{peer.step:,}" + (f" of {steps:,}" if steps else ""),
        "": ProgressBar(total=max(steps, 1), completed=peer.step, width=12),
        "loss": loss_text(peer.loss) if peer.version else "-",
    }
