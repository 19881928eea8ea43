"""What a virtual network knows of its peers, of the ways between them, and of each frame on one."""

from __future__ import annotations

import math
import random
from contextvars import Context
from dataclasses import dataclass
from typing import NamedTuple

from ...protocols.transport import Arrivals, PeerId
from ...protocols.wire.frames import Buffer
from .machine import Machine


@dataclass(slots=True, eq=False)
class Port:
    """Where a peer that is open takes frames, in whose name, and how busy its links are. What would leave after
    `sends_until_s` never does."""

    arrivals: Arrivals
    machine: Machine | None
    context: Context
    up_free_s: float = 0.0
    down_free_s: float = 0.0
    sends_until_s: float = math.inf


@dataclass(slots=True)
class Way:
    """From one peer to another. `connection`: how often it was made; frames of a broken one are lost. `entered_s`: when
    the last byte so far of `source` comes to the down-link; `last_s`: when the last frame so far is through to `there`.
    Another life of either queues behind nothing of the old one's."""

    name: bytes
    chance: random.Random
    source: Port | None = None
    there: Port | None = None
    entered_s: float = 0.0
    last_s: float = 0.0
    connection: int = 0
    clogged_until_s: float = 0.0


class Frame(NamedTuple):
    """`start_s`: when its first byte leaves `source`."""

    sender: PeerId
    to: PeerId
    header: bytes
    payload: Buffer
    size: int
    way: Way
    connection: int
    source: Port
    start_s: float
