"""Inviting: an invite as a user wishes it, and how a launcher has a peer of the run look at it or change it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...protocols.members.invitation import Invitation
from ...protocols.members.inviting import Inviting
from ...protocols.members.membership import MembershipError
from ...protocols.transport import PeerId
from ..settings.link_text import parse_span


def invitation_of(guest: PeerId, uses: int | None, span: str | None) -> Invitation:
    """By the guest key with that public half, for so many keys and so long; None: without a limit."""
    return Invitation(guest, uses, seconds=None if span is None else parse_span(span))


def question(replace: bool, invitation: Invitation | None) -> dict[str, Any]:
    """What a launcher asks a peer of the run: the present invitation, after `invitation` has taken its place if that is
    wished for."""
    return {"replace": replace, "invitation": None if invitation is None else asdict(invitation)}


async def reinvited(inviting: Inviting, asked: dict[str, Any]) -> dict[str, Any]:
    """The peer's answer: the run's invitation, its `guest` empty if there is none; or the `error`."""
    try:
        if asked["replace"]:
            wished = asked["invitation"]
            await inviting.replace(None if wished is None else Invitation(**wished))
    except MembershipError as error:
        return {"error": str(error)}
    present = inviting.present
    return {"guest": ""} if present is None else asdict(present)
