"""The messages of gossip, and the vectors that they announce. `ask`: the number of a question, which its answer
repeats."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from torch import Tensor

from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message
from .periods import Told

GOSSIP = "gossip"
"""The family of these messages, and the name of their channel."""
NEWEST = 0
"""The round in a question for the newest vector, of whatever round."""


class Form(IntEnum):
    """The form in which a vector's elements come with its numbers. NOTHING: no bytes, because the asker has the vector
    already, or wants the numbers only; DIFFERENCE: its encoded difference from another vector; WHOLE: the vector."""

    NOTHING = 0
    DIFFERENCE = 1
    WHOLE = 2


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Want:
    """Asks for the receiver's vector of `round` (`NEWEST`: the newest), or for its newest one if it no longer keeps
    that of `round`, or took its last step before it. The receiver answers by Given as soon as it has that vector. It
    refuses the question when it has no share of that round for the sender, when it averages with too many already, and,
    of two that wait, the older one. `form`: the `Form` in which the sender wants the vector; for DIFFERENCE it also
    takes the vector whole, or nothing if it has the vector already. `holds`: the round of the receiver's vector of
    which the sender has the estimate; None: it has none. `took`: number of the last question by which the sender has
    taken a share of the receiver's vector; 0: none. `meets`: the round whose vector the sender averages with the one
    that it gets (`pairs`); 0: it does not. `looks`: the sender is ready to read the vector on the receiver's board
    (`showing`)."""

    ask: int
    round: int
    form: int
    holds: int | None
    took: int
    meets: int
    looks: bool


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Took:
    """The answer to a Given whose vector is a share or lay on the board of the receiver of this message. The sender has
    the vector that the receiver gave it for the question numbered `took`: it has taken that share, or has finished
    reading the vector on the board."""

    took: int


@message(GOSSIP)
@dataclass(frozen=True, slots=True)
class Capable:
    """Tells the coordinator the bandwidth at which the sender can send. `level`: twice the binary logarithm of the
    bandwidth in bytes a second, rounded (`link_quality.bandwidths.level_of`); 0: unknown."""

    level: int


@message(GOSSIP, lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Given:
    """The answer to Want. Payload: the vector's first bytes, as many as suit the link; the others follow as chunks.
    `round`, `step`: the exchanges and the local steps that led to it. `last`: the sender takes no more steps, so this
    vector stands for all later rounds too. `form`: the `Form` of the payload. A difference leads from the sender's
    vector of the round `before`, or, if that is None, from the vector with the hash `base` (`estimates`). `loss`,
    `learning_rate`, `motion`, `links`: see `Told`. `number`: the vector's number on the sender's board, where the
    receiver is to read it; then nothing is sent. 0: it is not there."""

    ask: int
    round: int
    step: int
    last: bool
    form: int
    before: int | None
    base: bytes
    loss: float
    learning_rate: float
    motion: tuple[float, ...]
    links: int
    number: int


@dataclass(frozen=True, slots=True)
class Published:
    """A vector [n] that a peer has published for a round, and that is not written to any more; also as its taker has
    it. `step`: the local steps of the run that led to it; `told`: the numbers that the peer tells with it; `last`: the
    peer takes no more steps, so that this vector stands for all later rounds too. `difference`: its encoded difference
    from another vector; None: there is none. `before`, `base`: these name the other vector as in `Given`; not set in a
    taker's copy. `vector` is empty [0] where a neighbour was asked for its numbers only, or where the difference alone
    is kept. It is also the event by which a simulation learns of the publication."""

    round: int
    step: int
    vector: Tensor
    told: Told = Told()
    last: bool = False
    difference: Tensor | None = None
    before: int | None = None
    base: bytes = b""

    @property
    def carried_bytes(self) -> int:
        """The bytes in which this vector is sent to a peer that takes it: those of `difference`, or of `vector` if
        there is no difference."""
        return (self.vector if self.difference is None else self.difference).nbytes
