"""Losses: members that are no more, and why, for the record."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from ..transport import PeerId
from .roster import Gone, Roster
from .view import Decree, Member


@dataclass(frozen=True, slots=True)
class Loss:
    """A member that is no more. `since_s`: when it was missed, on the loop's clock."""

    peer: PeerId
    name: str
    address: str
    since_s: float
    why: str
    advice: str
    left: bool
    """Whether it went of its own will."""


def loss_of(member: Member, decree: Decree, roster: Roster) -> Loss:
    """That of a `member` whom `decree` leaves out, as far as this peer's `roster` knows, or else the decree."""
    told = next((departed for departed in decree.departed if departed.peer == member.id), None)
    left = member.id in roster.leaving or (told is not None and told.left)
    unknown = Gone("the coordinator gave it up" if told is None else told.why, asyncio.get_running_loop().time())
    gone = roster.gone.get(member.id) or unknown
    why = f"left: {roster.leaving.get(member.id, gone.why)}" if left else gone.why
    advice = "" if left else "if it lives, it joins again by itself; else start it anew with the join line"
    return Loss(member.id, member.name, member.address, gone.since_s, why, advice, left)
