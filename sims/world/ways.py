"""A virtual network's state: its ports, the ways between them, and the frames on a way."""

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
    """The port of an open peer: its receiver of frames, its machine's context, and how busy its links are. Frames that
    would leave after `sends_until_s` never do."""

    arrivals: Arrivals
    machine: Machine | None
    context: Context
    up_free_s: float = 0.0
    down_free_s: float = 0.0
    sends_until_s: float = math.inf


@dataclass(slots=True)
class Way:
    """The way from one peer to another. `connection`: how often it was made; frames of a broken one are lost.
    `entered_s`: when the last byte so far of `source` reaches the down-link; `last_s`: when the last frame so far is
    through to `there`. Frames of another life of either peer do not queue behind those of the old one."""

    name: bytes
    chance: random.Random
    source: Port | None = None
    there: Port | None = None
    entered_s: float = 0.0
    last_s: float = 0.0
    connection: int = 0
    clogged_until_s: float = 0.0


class Frame(NamedTuple):
    """A frame on a way. `start_s`: when its first byte leaves `source`."""

    sender: PeerId
    to: PeerId
    header: bytes
    payload: Buffer
    size: int
    way: Way
    connection: int
    source: Port
    start_s: float
