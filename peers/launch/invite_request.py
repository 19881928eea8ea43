"""Making an invitation from the user's options, and the messages by which a launcher asks a peer to read or change the
run's invitation."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ...protocols.members.errors import MembershipError
from ...protocols.members.invitation import Invitation
from ...protocols.members.port import Inviter
from ...protocols.transport import PeerId
from ..settings.link_text import parse_span


def invitation_of(guest: PeerId, uses: int | None, span: str | None) -> Invitation:
    """The invitation for the guest key `guest` (public half). `uses`: number of keys that it admits; `span`: the time
    for which it is valid, e.g. "2h"; None for either: no limit. Raises ValueError for an invalid span."""
    return Invitation(guest, uses, seconds=None if span is None else parse_span(span))


def question(replace: bool, invitation: Invitation | None) -> dict[str, Any]:
    """A launcher's request to a peer of the run, as JSON: report the run's invitation. `replace`: replace it first by
    `invitation`, or revoke it if that is None."""
    return {"replace": replace, "invitation": None if invitation is None else asdict(invitation)}


async def reinvited(inviting: Inviter, asked: dict[str, Any]) -> dict[str, Any]:
    """Replace or revoke the run's invitation, if the request `asked` wants that, and return the answer, as JSON: the
    invitation that the run has now, with an empty `guest` if it has none; or an `error` when it could not be
    replaced."""
    try:
        if asked["replace"]:
            wished = asked["invitation"]
            await inviting.replace(None if wished is None else Invitation(**wished))
    except MembershipError as error:
        return {"error": str(error)}
    present = inviting.present
    return {"guest": ""} if present is None else asdict(present)
