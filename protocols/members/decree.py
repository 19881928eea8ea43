"""What a proposer would have decided: the view after this one, and the round that all go on from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import replace

from ..transport import PeerId
from .roster import Roster
from .view import Decree, Departed, Member, Promise, View, in_words, ranked, with_data_parts

_DEPARTED_MAX = 16


def next_decree(roster: Roster, promises: Mapping[PeerId, Promise], founders: int) -> Decree:
    """The view of those who promised, without the leaving, with the newcomers that it has room for."""
    view, generation = roster.view, roster.view.generation + 1
    last, donors = _last_round(roster, promises)
    present = [member for member in view.members if member.id in promises and member.id not in roster.newcomers]
    going = {member.id for member in present if member.id in roster.leaving}
    if going.issuperset(donors):
        going = set()  # they alone have the result, so they stay until another has it
    staying = [member for member in present if member.id not in going]
    newcomers = with_data_parts(_fitting(roster, staying), staying, founders, generation)
    known = [replace(m, bandwidth_Bps=roster.bandwidths_Bps.get(m.id, m.bandwidth_Bps)) for m in staying]
    members = ranked(known + newcomers)
    ids = {member.id for member in members}
    started = view.started or len(members) >= founders
    donors = [peer for peer in donors if peer in ids]
    return Decree(View(generation, members, started), last, tuple(donors), _departed(roster, ids))


def _last_round(roster: Roster, promises: Mapping[PeerId, Promise]) -> tuple[int, list[PeerId]]:
    """The last round that may be committed, and who has its result. Where results differ, the one that most have is the
    round's; the others fetch it. Before the first round newcomers count too: a run may be resumed in any order.

    A result that too few have cannot be committed: then the round is run again, among those who are left. To hand it on
    would make all depend on the few who have it.
    """
    view = roster.view
    members = {peer: (promise.round, promise.fingerprint) for peer, promise in promises.items()}
    newcomers = {peer: (came.round, came.fingerprint) for peer, came in roster.newcomers.items()}
    held = members if view.started else {**newcomers, **members}
    last = max(number for number, _ in held.values())
    have, unknown = [peer for peer, (number, _) in held.items() if number == last], len(view.ids) - len(members)
    ahead: list[PeerId] = []
    if view.started and last > roster.base and len(have) + unknown < view.majority():
        last, ahead = last - 1, have  # they hold it too: what they have beside is not committed
    results = Counter(has for has in held.values() if has[0] == last)
    result = max(results, key=lambda each: (results[each], each == members[roster.id], each))
    return last, [*(peer for peer, has in {**newcomers, **members}.items() if has == result), *ahead]


def _fitting(roster: Roster, staying: list[Member]) -> list[Member]:
    view, newcomers = View(0, tuple(staying), False), []
    for came in roster.newcomers.values():
        if view.has_room(came.member):
            newcomers.append(came.member)
            view = View(0, (*view.members, came.member), False)
    return newcomers


def _departed(roster: Roster, staying: Collection[PeerId]) -> tuple[Departed, ...]:
    departed = []
    for peer in roster.view.ids:
        if peer in roster.leaving and peer not in staying:
            departed.append(Departed(peer, in_words(roster.leaving[peer]), left=True))
        elif peer in roster.gone:
            departed.append(Departed(peer, in_words(roster.gone[peer].why), left=False))
    return tuple(departed[:_DEPARTED_MAX])
