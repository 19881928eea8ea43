"""The messages of gossip, and the vectors that they announce."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message
from .periods import Told

GOSSIP = "gossip"
"""The family of these messages, and the name of their channel."""
NEWEST = 0
"""The round to ask for when any will do."""


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Want:
    """Asks for the vector of `round`, or of the newest round if the receiver is past that one or takes no more
    steps. `follows`: the round to which a difference leads from the receiver's vector that the sender has; 0: it has
    none. `took`: the last question by which the sender has taken a share of the receiver's vector; 0: none.
    `meets`: the sender averages its own vector of this round with the one that it gets; 0: it does not. `looks`: the
    sender can read the receiver's board."""

    ask: int
    round: int
    follows: int
    took: int
    meets: int
    looks: bool


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Took:
    """The sender has taken the share for which it asked by the question `took`, or what it was lent as an answer."""

    took: int


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Capable:
    """Tells the coordinator how fast the sender's links are: see `link_quality.bandwidths.level_of`."""

    level: int


@message(GOSSIP, lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Given:
    """The answer to Want. Payload: the vector's first bytes, as many as suit the link; the others follow as chunks.
    `round`, `step`: the exchanges and the local steps that led to it. `last`: the sender takes no more steps, so this
    vector stands for all later rounds too. `difference`: not the vector is given, but its encoded difference from that
    of the round before. `loss`, `learning_rate`, `motion`, `links`: see `Told`. `number`: of the vector on the sender's
    board, where the receiver is to read it, and nothing follows; 0: it is not there."""

    ask: int
    round: int
    step: int
    last: bool
    difference: bool
    loss: float
    learning_rate: float
    motion: tuple[float, ...]
    links: int
    number: int


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Offer:
    """The sender's board, open in process `pid` as `fd`, with the `secret` on it. `row`: of its marks for the
    receiver."""

    pid: int
    fd: int
    secret: bytes
    row: int


@dataclass(frozen=True, slots=True)
class Published:
    """A peer's `vector` [n] of a round, which is not written to any more; see `Given`. `difference`: its encoded
    difference from that of the round before; None: there is none. Also the event of a simulation that it was
    published."""

    round: int
    step: int
    vector: Tensor
    told: Told = Told()
    last: bool = False
    difference: Tensor | None = None

    @property
    def carried_bytes(self) -> int:
        """Bytes in which it came to a peer that has taken it."""
        return (self.vector if self.difference is None else self.difference).nbytes
