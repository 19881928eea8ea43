"""The state of a virtual network: the ports of peers, the ways between peers, and the frames on them."""

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
    """The port of an open peer. `arrivals`: receives its frames; `machine` (None: none, it is code of the world
    itself), `context`: where its code runs; `up_free_s`, `down_free_s`: virtual times at which its up-link and its
    down-link will be free; `sends_until_s`: virtual time after which no frame of it leaves any more; infinite: it is
    open."""

    arrivals: Arrivals
    machine: Machine | None
    context: Context
    up_free_s: float = 0.0
    down_free_s: float = 0.0
    sends_until_s: float = math.inf


@dataclass(slots=True)
class Way:
    """The way from one peer to another. `name`: for the run's digest; `chance`: its generator. `connection`: how often
    its connection was broken and made again; frames of a former connection are lost. `entered_s`: the latest virtual
    time at which the last byte of a frame from the port `source` reaches the down-link; `last_s`: the latest virtual
    time at which a frame arrives at the port `there`. `entered_s` begins anew when the sender opens another port,
    `last_s` when the receiver does. `clogged_until_s`: virtual time before which no frame arrives that has yet to enter
    the down-link."""

    name: bytes
    chance: random.Random
    source: Port | None = None
    there: Port | None = None
    entered_s: float = 0.0
    last_s: float = 0.0
    connection: int = 0
    clogged_until_s: float = 0.0


class Frame(NamedTuple):
    """A frame on a way. `size`: its bytes on the wire; `link_bytes`: what these take of a link; `connection`: number of
    the way's connection by which it was sent; `source`: the sender's port; `start_s`: virtual time at which its first
    byte leaves that port."""

    sender: PeerId
    to: PeerId
    header: bytes
    payload: Buffer
    size: int
    link_bytes: int
    way: Way
    connection: int
    source: Port
    start_s: float
