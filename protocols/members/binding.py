"""Binding: which of the decrees that members say they have adopted a proposer has to propose.

Paxos lets a proposer propose the decree adopted under the highest ballot, whichever promise tells of it. So one member
that lies in its promise could have any view decided. Here a decree binds the proposer only if

 1. it may be chosen: the members that tell of it, and those that have not promised, are a quorum together, or more than
    half; or
 2. so many members besides its proposer tell of it that a member may have gone on to its view (`echoes.honest_of`), as
    others may hide that they have adopted it; or
 3. it is this proposer's own.

Of those that bind, the one of the highest ballot is proposed; if none binds, a new one. A member that tells of a decree
under a ballot counts for that decree under each lower ballot too.

Where nobody lies, this is as safe as Paxos. Let a quorum A have adopted D under the ballot b. Each member of A that has
promised tells of D under b or a higher ballot, because every later proposal is D. So A is among the members of 1, and D
binds under b; no other decree has been proposed under b or a higher ballot. Without the members that have not promised
this would not hold: of A and the smallest quorum of 5 promises, only one member may tell of D. Hence a decree that
nobody proposed is decided only if the members that lie and those that do not promise are a quorum together, or more
than a third lie. (With a fixed quorum, what holds of the smaller of it and a majority holds.)
A proposer that was restarted counts among those that have not promised: it asks the others before its own adoption is
on record. More than half count also where the user has fixed a larger quorum, because an acceptor that knows of so many
adopts no other decree (`Echoes.may_hold`).
A member that has said that another decree of this generation holds does not count among those that have not promised:
where nobody lies, that one is chosen. So a leader that lies alone, and has one member go on to a view, cannot have a
second decree preferred by a higher ballot.

Cost: none where no member has adopted anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ..testpoints import sometimes
from ..transport import PeerId
from .echoes import Echoes, honest_of, proposer_of
from .hearsay import Hearsay
from .messages import Promise
from .quorum import Quorum
from .roster import Roster
from .view import Decree, View


def binding(
    roster: Roster, quorum: Quorum, echoes: Echoes, hearsay: Hearsay, promises: Mapping[PeerId, Promise]
) -> Decree | None:
    """The decree that this peer has to propose after the members in `promises` have promised; None: it is free to make
    a new one."""
    ids, me = roster.view.ids, roster.id
    silent = set(ids).difference(promises)
    restarted = {peer for peer, promise in promises.items() if promise.former}
    for ballot, decree in _reported(promises):
        tell = {peer for peer, highest in echoes.tellers(decree).items() if highest >= ballot}
        tell |= {peer for peer, one in promises.items() if one.decree == decree and one.adopted >= ballot}
        proposer = {proposer_of(ids, ballot)}
        possible = tell | (silent | restarted & proposer) - hearsay.of_another(decree)
        own = proposer == {me} <= tell
        majority = quorum.enough(possible) or len(possible) >= roster.view.majority()
        if own or majority or len(tell - proposer) >= honest_of(len(ids)):
            return decree
        sometimes("an adopted decree does not bind")
    return None


def contradictions(view: View, promises: Mapping[PeerId, Promise]) -> Iterator[tuple[PeerId, str]]:
    """Each member that tells of a decree adopted under a ballot of another member, whose own promise tells only of
    lower ballots; and the contradiction in words. One of the two lies, because a proposer adopts its own decree first.
    A restarted proposer (`Promise.former`) contradicts nobody, as its own adoption may not be on record."""
    for peer, promise in promises.items():
        proposer = proposer_of(view.ids, promise.adopted)
        theirs = None if proposer is None else promises.get(proposer)
        if proposer is not None and theirs is not None and not theirs.former and theirs.adopted < promise.adopted:
            name = view.name(proposer)
            yield peer, f"says that it adopted a view that {name} proposed, and {name} says that it proposed none"


def _reported(promises: Mapping[PeerId, Promise]) -> list[tuple[int, Decree]]:
    """The decrees of which promises tell, each once for each of its ballots; the highest ballot first."""
    reported: list[tuple[int, Decree]] = []
    for promise in promises.values():
        if promise.decree is not None and (promise.adopted, promise.decree) not in reported:
            reported.append((promise.adopted, promise.decree))
    return sorted(reported, key=lambda one: one[0], reverse=True)
