"""The last known state of one peer, as the live table shows it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Final

STATES: Final[Mapping[str, str]] = {
    "started": "training",
    "joined": "training",
    "present": "training",
    "asleep": "asleep",
    "awake": "catching up",
    "resumed": "training",
    "left": "left",
    "lost": "lost",
    "back": "training",
    "waiting": "waiting",
    "silent": "silent",
    "stalled": "stalled",
    "goes_on": "training",
    "alone": "training",
    "stopped": "stopped",
    "error": "error",
}
"""Event -> the state of its peer afterwards."""
GONE: Final = ("left", "stopped")
IDLE: Final = ("waiting", "asleep")
"""States in which a peer stands still, for a reason that its last event tells."""
TROUBLE: Final = ("lost", "apart", "stalled", "waiting", "asleep", "silent", "error")


@dataclasses.dataclass(kw_only=True, slots=True)
class PeerState:
    """The last known state of one peer."""

    name: str
    state: str = "starting"
    version: int = 0
    """Number of its last exchange."""
    step: int = 0
    steps_per_s: float = 0.0
    loss: float = math.nan
    details: Mapping[str, float] = dataclasses.field(default_factory=dict)
    bytes_sent: int = 0
    """Bytes since the run started, also before it was resumed, as are `bytes_received`."""
    bytes_received: int = 0
    event: str = ""
    work: str = ""
    """The work of a stalled peer; empty: unknown."""
    role: str = ""
    """Its role in the run; empty: it trains, or it is not known yet."""
    tells: bool = False
    """Whether this peer's own records arrive here; if not, only the records of others say something about it."""
    event_number: int = 0
    """Number of its last event, counted over all peers."""

    @property
    def steps_known(self) -> bool:
        """Whether this peer's local steps are known: it trains, and its records arrive here."""
        return self.tells and not self.role

    @property
    def shown_state(self) -> str:
        """`state` as the table shows it: a peer with a role, such as a server, is "serving" and not "training"."""
        return "serving" if self.role and self.state == "training" else self.state
