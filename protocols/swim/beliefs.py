"""Beliefs: the states that one peer holds another peer to be in, and the transitions between them. `TABLE` lists every
transition. A word is a message of a peer on another one (`words`); an incarnation is a number that a peer raises to
refute that it is dead.

    unknown ---> alive <---> suspect ---> lost              by its own probes
                   ^  \\        |   ^        |
                   |   \\       v   |        |               a word of others that it is dead
                   |    +--> doubted ---> lost, left
                   |                        |
                   +------------------------+               by its own word, or with a higher incarnation

From alive, suspect and doubted a member may also be found ended, leave of its own will, or be given up as a neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from ..transport import PeerId


class Belief(StrEnum):
    """The state that one peer holds another one to be in."""

    UNKNOWN = "unknown"  # not among the members that this peer knows, or no neighbour any more
    ALIVE = "alive"
    SUSPECT = "suspect"  # a probe has failed, or another peer says so
    DOUBTED = "doubted"  # declared dead by another peer
    LOST = "lost"  # declared dead by this peer, or believed to be
    LEFT = "left"  # gone of its own will


_ENDS = frozenset({Belief.LOST, Belief.LEFT, Belief.UNKNOWN})

TABLE: dict[Belief, frozenset[Belief]] = {
    Belief.UNKNOWN: frozenset({Belief.ALIVE}),
    Belief.ALIVE: _ENDS | {Belief.ALIVE, Belief.SUSPECT, Belief.DOUBTED},
    Belief.SUSPECT: _ENDS | {Belief.ALIVE, Belief.SUSPECT, Belief.DOUBTED},
    Belief.DOUBTED: _ENDS | {Belief.ALIVE, Belief.SUSPECT, Belief.DOUBTED},
    Belief.LOST: frozenset({Belief.ALIVE}),
    Belief.LEFT: frozenset({Belief.ALIVE}),
}
"""The beliefs that may follow each belief. The same one again: with a higher incarnation, or by the peer's own word."""


@dataclass(frozen=True, slots=True)
class Begun:
    """Event for a simulation's checkers: a peer begins to take part, with this `life` (`words`)."""

    life: int


@dataclass(frozen=True, slots=True)
class Believes:
    """Event for a simulation's checkers: from now on a peer holds this `belief` of the life `life` of `peer`, in this
    incarnation of it (`words`). `own`: because of a word of `peer` itself, or because this peer has let it in."""

    peer: PeerId
    life: int
    belief: Belief
    incarnation: int
    own: bool = False
