"""The message of a stalled peer, and the report to a user."""

from __future__ import annotations

from dataclasses import dataclass

from ..transport import PeerId
from ..wire.frames import message

STALLS = "stalls"
"""The family of these messages, and the name of their channel."""


@message(STALLS)
@dataclass(frozen=True, slots=True)
class Stalled:
    """From a peer to all members: it has been at this `work` for its contribution to `round` for `taken_s` seconds.
    `over`: it has ended now. `where`: its progress. `usual_s`: seconds that such work took recently; 0: unknown yet."""

    generation: int
    round: int
    work: str
    where: str
    taken_s: float
    usual_s: float
    over: bool


@dataclass(frozen=True, slots=True)
class Stall:
    """A report to the user: a round waits for `peer`, which may be this peer itself, for the reason `why`. `over`: it
    waits no longer; `why` tells how the wait ended."""

    peer: PeerId
    why: str
    over: bool = False
    work: str = ""
    """The kind of work that the peer is at (`works`); "": it has told nothing."""


def told_words(said: Stalled) -> str:
    """The report of a peer that is stalled, in words: how long it has worked, at what, and how long that usually
    takes."""
    usual = f"usually {said.usual_s:.3g} s" if said.usual_s else "the first"
    return f"{said.taken_s:.0f} s of {said.work}, {usual}" + (f"; now {said.where}" if said.where else "")


def told_end(said: Stalled) -> str:
    """The report of a peer's work that has ended, in words: 'after 12 s of local steps'."""
    return f"after {said.taken_s:.0f} s of {said.work}"
