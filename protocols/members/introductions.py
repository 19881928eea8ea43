"""Introductions: what other peers tell one peer of newcomers is checked before it counts.

One member says that another one joins anew, in a new life. A contact does so for a member that was restarted
(`admission`). If its word were enough, one liar could have all others taken for members that join anew, and none would
be left to decide a view. So the receiver asks the member in question (AskAnew). A process that has asked a contact to
let it in answers with its own introduction; a member that goes on in its former life does not answer. Where the former
process has ended without a word, the first question only shows that the link to it is over. The member is `gone` then,
and is asked again, over a new link.

A newcomer is dialled at the address that its contact names. A peer that names hosts of others without end has only so
many of them dialled in an hour. A newcomer that is not dialled may have called itself; it is dialled when it is in the
view. A member that is said to join anew is dialled at a new address only once it is gone.

Cost: two small messages and a round trip for each member that comes back while its former life is in the view.
On failure: the contact introduces the member again whenever its own view or roster changes, and a newcomer that is not
let in asks another contact. False claims of one member cost a question an interval for each member that they are about.
"""

from __future__ import annotations

from typing import NamedTuple

from ..addresses import Elsewhere
from ..channel import Channel
from ..testpoints import sometimes
from ..transport import PeerId
from .backoff import Once
from .messages import AskAnew
from .roster import Roster
from .view import Member

_DIALLED_FOR_OTHERS, _DIALLED_FOR_MEMBERS = 32, 1024
"""How many newcomers' addresses are dialled in an hour whose host is another than that of the peer that names them. The
first limit is for those that newcomers themselves and learners name, the second for those that members name."""


class _Claim(NamedTuple):
    """The claim that `member` joins anew, in the life and at the address that it is told with. `gone`: the member was
    gone when it was asked."""

    member: Member
    gone: bool


class Introductions:
    """One peer's checks of what others tell it of newcomers."""

    def __init__(self, channel: Channel, roster: Roster) -> None:
        self._channel, self._roster = channel, roster
        self._elsewhere = Elsewhere(_DIALLED_FOR_MEMBERS, 3600.0)
        self._claims: dict[tuple[PeerId, PeerId], _Claim] = {}
        """The last claim on each member in this view, by each peer that tells it."""
        self._asks: Once[tuple[PeerId, PeerId]] = Once(channel.endpoint.interval_s)
        roster.on_news.append(self._ask_again)

    def begin(self) -> None:
        """Start afresh in another view: claims are forgotten, and each may be asked about at once."""
        self._claims.clear()
        self._asks.clear()

    def dial(self, newcomer: Member, teller: PeerId) -> None:
        """Dial a newcomer at the address that `teller` names; not if its host is another than that of `teller`, and too
        many such were dialled in the last hour: 1024 where `teller` is a member, else 32."""
        most = _DIALLED_FOR_MEMBERS if teller in self._roster.view.ids else _DIALLED_FOR_OTHERS
        if self._elsewhere.allows(self._channel.endpoint.whence(teller), newcomer.address, most, newcomer.id):
            self._channel.endpoint.dial(newcomer.id, newcomer.address)

    def verify(self, member: Member, teller: PeerId) -> None:
        """Ask a peer that is in the view, and of which `teller` says that it is now `member`, in another life, whether
        that is so: at most once an interval for each peer that tells it."""
        if self._asks.due((member.id, teller)):
            self._ask(member, teller)

    def settle(self, peer: PeerId) -> None:
        """Forget the claims on `peer`: it has spoken for itself."""
        self._claims = {about: claim for about, claim in self._claims.items() if about[0] != peer}

    def _ask(self, member: Member, teller: PeerId) -> None:
        gone = member.id in self._roster.gone
        self._claims[member.id, teller] = _Claim(member, gone)
        if gone:
            self.dial(member, teller)
        self._channel.post(member.id, AskAnew(self._roster.view.generation))

    def _ask_again(self) -> None:
        """Ask the members that were not gone when they were asked, and are now."""
        for (peer, teller), claim in list(self._claims.items()):
            if peer in self._roster.gone and not claim.gone:
                sometimes("a member that joins anew was asked over a new link")
                self._ask(claim.member, teller)
