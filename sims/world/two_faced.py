"""A member that proposes two next views at once: one to some of the others, another to the rest."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

from ...protocols.members.echoes import RANKS
from ...protocols.members.membership import Membership
from ...protocols.members.messages import Adopt, Install, Propose
from ...protocols.members.view import Decree
from ...protocols.transport import PeerId
from .simulated_peer import Life

_COUNTER = 1 << 12
"""The ballots of such a member are as high as those of an honest one after so many tries, so that they are heeded."""


def present(life: Life) -> Decree | None:
    """The view in which that peer is, with the version from which its members go on; None: it is in no view that all
    members agree on."""
    membership = life.peer.membership
    if not isinstance(membership, Membership) or life.id not in membership.view.ids:
        return None
    return Decree(membership.view, membership.base, (life.id,), ())


def two_proposals(life: Life, chance: random.Random) -> Iterator[tuple[PeerId, object]]:
    """The messages by which the member `life` proposes two next views under one ballot, and says of each that it is
    decided, with their receivers. In the one all go on, and in the other one member of those that are told of the first
    is left out. There are none where fewer than two other members are in its view."""
    now = present(life)
    if now is None or len(now.view.ids) < 3:
        return
    others = [peer for peer in now.view.ids if peer != life.id]
    chance.shuffle(others)
    few = chance.randint(1, len(others) - 1)
    all_go_on = replace(now, view=replace(now.view, generation=now.view.generation + 1))
    left = tuple(one for one in now.view.members if one.id != others[0])
    one_is_out = replace(all_go_on, view=replace(all_go_on.view, members=left))
    generation, ballot = now.view.generation, chance.randint(1, _COUNTER) * RANKS + now.view.ids.index(life.id)
    for place, to in enumerate(others):
        decree = all_go_on if place < few else one_is_out
        for message in (Propose(generation, ballot), Adopt(generation, ballot, decree), Install(decree)):
            yield to, message
