"""Makes the decree that a proposer proposes: the next view, and the version of the state from which all its members
continue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from ..transport import PeerId
from ..wire.frames import in_words
from .invites import Uses
from .messages import Promise
from .places import GAVE_WAY
from .roster import Roster
from .view import NAME_LETTERS_MAX, Decree, Departed, Member, Version, View

_DEPARTED_MAX = 16
_DONORS_MAX = 64
"""The most donors (peers that hold the version) in a decree: enough that one of them lives, and few enough for the
message."""


def next_decree(roster: Roster, promises: Mapping[PeerId, Promise], founders: int, servers: int = 0) -> Decree:
    """The decree that this peer proposes, after the members in `promises`, this peer among them, have promised. The
    members of its view: these, without those that leave (they stay, too, if they alone hold the version), that vote for
    a former life, or that join anew; and learners that hold the state, fewer than these members, but at least one if
    there is one. Other learners stay learners, unless they are gone or give way. The newcomers that are invited and fit
    in become members if the run has not started, or if they alone hold the version; otherwise they become learners.
    `founders`: how many members start the run, of which `servers` have a role."""
    uses = Uses(roster.invites, roster.view)
    view, generation = roster.view, roster.view.generation + 1
    base, donors = _base(roster, promises)
    anew = {*roster.former, *roster.newcomers}
    there = {peer for peer, promise in promises.items() if not promise.former and peer not in anew}
    present = [member for member in view.members if member.id in there]
    going = {member.id for member in present if member.id in roster.leaving}
    if going.issuperset(peer for peer in donors if peer in there or peer in roster.learned):
        going = set()  # they alone have the result, so they stay until another has it
    staying = [member for member in present if member.id not in going]
    learners = [one for one in view.learners if one.id not in roster.gone and one.id not in roster.newcomers]
    learned = [one for one in learners if one.id in roster.learned][: max(1, len(staying) - 1)]
    learning = [one for one in learners if one not in learned]
    came, gave_way = _fitting(roster, [*staying, *learned], learning, uses)
    learning = [one for one in learning if one not in gave_way]
    came = _named(came, [*staying, *learned, *learning])
    if view.started and not {*donors} & {one.id for one in (*staying, *learned)}:
        holders = [one for one in came if one.id in donors]  # nobody else has the result, so they are members at once
        learned, came = learned + holders, [one for one in came if one not in holders]
    joining = learned if view.started else came
    known = [m.of_capacity(roster.capacities.get(m.id, m.attributes.capacity)) for m in staying]
    members = _ranked(known + with_data_shards(joining, staying, founders, generation))
    if view.started:
        learning += [replace(one, since=generation) for one in came]
    started = view.started or _gathered(members, founders, servers)
    ids = {member.id for member in members}
    donors = [peer for peer in donors if peer in ids]
    given = not view.started or (roster.given and base.number <= roster.base.number)
    stayed = {member.id for member in staying}
    apart = tuple(sorted(edge for edge in roster.apart if stayed.issuperset((edge.one, edge.other))))
    next_view = View(generation, members, started, tuple(learning), apart, uses.invitation, uses.let_in)
    return Decree(next_view, base, tuple(donors[:_DONORS_MAX]), _departed(roster, ids, gave_way), given)


def idle_change(roster: Roster, is_lost: Callable[[PeerId], str | None]) -> bool:
    """Whether there is a reason for a change of the view that can wait while the members are busy: learners come, go or
    become members, or the invitation is replaced. A newcomer that is lost is no reason: the change would not let it in.
    `is_lost` returns why a peer is lost; None: it is not."""
    view, invites = roster.view, roster.invites
    lost = any(learner.id in roster.gone for learner in view.learners)
    comes = any(
        (came.member.id in view.everybody or has_place(roster, came.member))
        and not invites.why_not(newcomer, came.guest)
        and is_lost(newcomer) is None
        for newcomer, came in roster.newcomers.items()
    )
    return lost or comes or bool(roster.learned) or invites.wish is not None


def _base(roster: Roster, promises: Mapping[PeerId, Promise]) -> tuple[Version, list[PeerId]]:
    """The last version that may have been committed, and the peers that hold it. Where results of one number differ, a
    committed one counts, or else the one with the most votes; the other peers fetch it. Before the run has started
    newcomers count too, because peers may resume a run in any order.

    A result with too few votes cannot have been committed: the remaining members make that version again. Going on from
    such a result would make all peers depend on the few that hold it.
    """
    view = roster.view
    came = {peer: came.version for peer, came in roster.newcomers.items()}
    came |= {peer: told.version for peer, told in roster.learned.items()}
    states = [*(came.values() if not view.started else ()), *(promise.state for promise in promises.values())]
    committed = max(version.number for version in states)
    votes = Counter(promise.result for promise in promises.values())
    last, unknown = max(committed, *(version.number for version in votes)), len(view.ids) - len(promises)
    voted = sum(count for version, count in votes.items() if version.number == last)
    if view.started and last > max(committed, roster.base.number) and voted + unknown < view.majority():
        last = committed
    found = Counter(version for version in states if version.number == last) or +votes
    own = promises[roster.id]
    base = max(
        (version for version in found if version.number == last),
        key=lambda version: (votes[version], version in (own.state, own.result), version.fingerprint),
    )
    have = [peer for peer, version in came.items() if version == base]
    have += [peer for peer, own in promises.items() if base == own.state or (own.has and base == own.result)]
    return base, list(dict.fromkeys(have))


def has_place(roster: Roster, newcomer: Member) -> bool:
    """Whether the next view has room for `newcomer`, if need be in place of a learner that gives way."""
    learning = [one for one in roster.view.learners if one.id not in roster.learned]
    staying = [one for one in (*roster.view.members, *roster.view.learners) if one not in learning]
    return roster.places.for_one(newcomer, staying, learning) is not None


def _fitting(
    roster: Roster, staying: list[Member], learning: list[Member], uses: Uses
) -> tuple[list[Member], list[Member]]:
    """The newcomers that the next view holds, and the learners that give way to them."""
    newcomers, gave_way = list[Member](), list[Member]()
    for came in roster.newcomers.values():
        left = [one for one in learning if one not in gave_way]
        giving_way = roster.places.for_one(came.member, staying, [*left, *newcomers])
        if giving_way is not None and uses.let(came.member.id, came.guest):
            newcomers.append(came.member)
            gave_way += giving_way
    return newcomers, gave_way


def _named(newcomers: list[Member], known: list[Member]) -> list[Member]:
    """Make names unique: a newcomer whose name is taken gets the first letters of its key appended."""
    taken, named = {member.name for member in known}, []
    for member in newcomers:
        name = member.name if member.name not in taken else f"{member.name[: NAME_LETTERS_MAX - 7]}-{member.id[:6]}"
        taken.add(name)
        named.append(replace(member, name=name))
    return named


def _departed(roster: Roster, staying: Collection[PeerId], gave_way: Sequence[Member]) -> tuple[Departed, ...]:
    departed = []
    for peer in roster.view.ids:
        if peer in roster.leaving and peer not in staying:
            departed.append(Departed(peer, in_words(roster.leaving[peer]), left=True))
        elif peer in roster.gone:
            departed.append(Departed(peer, in_words(roster.gone[peer].why), left=False))
    departed += [Departed(learner.id, GAVE_WAY, left=False) for learner in gave_way]
    return tuple(departed[:_DEPARTED_MAX])


def _gathered(members: Sequence[Member], founders: int, servers: int) -> bool:
    """Whether there are enough members to start. Where some are to have a role, more of the one kind do not stand for
    the other."""
    with_role = sum(bool(member.attributes.role) for member in members) if servers else 0
    return with_role >= servers and len(members) - with_role >= founders - servers


def _ranked(members: list[Member]) -> tuple[Member, ...]:
    """Members in rank order: the same on all peers, and the same again in a run that is repeated."""
    return tuple(sorted(members, key=lambda m: m.rank))


def with_data_shards(newcomers: list[Member], staying: list[Member], shards: int, generation: int) -> list[Member]:
    """The `newcomers` as members since `generation`, in the order of the ranks that they came with, each with one of
    the `shards` data shards: the one that it asks for, else the first that no member has, or, when all are taken, one
    that it shares with another member. A peer with a role needs no shard and keeps its number."""
    taken = {member.attributes.data_shard for member in staying if not member.attributes.role}
    placed = []
    for index, member in enumerate(sorted(newcomers, key=lambda m: m.rank)):
        free = [shard for shard in range(shards) if shard not in taken]
        shard = member.attributes.data_shard
        if member.attributes.role:
            placed.append(replace(member, since=generation))
            continue
        if shard in taken or shard >= shards:
            shard = free[0] if free else (len(staying) + index) % shards
        taken.add(shard)
        own = replace(member.attributes, data_shard=shard)
        placed.append(replace(member, attributes=own, since=generation))
    return placed
