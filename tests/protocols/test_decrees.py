"""What is decided: who is in the next view, from which round it goes on, and who has its result."""

from dataclasses import replace

import pytest
from simulated import LINK, endpoint_in, no_complaints  # noqa: F401

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.limits import VIEW_BYTES_MAX, VIEW_MEMBERS_MAX
from samovar.protocols.members.attributes import SERVER
from samovar.protocols.members.messages import MEMBERS, Install, Introduce, Promise, Stale
from samovar.protocols.members.next_view import next_decree, with_data_shards
from samovar.protocols.members.roster import Roster
from samovar.protocols.members.view import Attributes, Decree, Departed, Gone, Member, Version, View
from samovar.protocols.wire.frames import HEADER_BYTES_MAX, decode, encode, in_words
from samovar.protocols.zeromq.transport import KeyPair
from samovar.sims.world.network import Network

STATE = Version(3, 30)


def promise(*, state: Version = STATE, result: Version | None = None, has: bool = True) -> Promise:
    return Promise(7, 1, 1, state, result or state, has, 0, None)


def roster_of(count: int, *, started: bool = True) -> tuple[Roster, dict[str, Promise]]:
    members = tuple(Member(f"p{i}", f"p{i}", "", Attributes(data_shard=i), i + 1, life=i + 1) for i in range(count))
    endpoint: Endpoint = endpoint_in(Network(parse_link(LINK), 1), "p0")
    roster = Roster(Channel(endpoint, MEMBERS), members[0])
    roster.me = members[0]
    roster.view = View(7, members, started)
    return roster, {member.id: promise() for member in members}


def test_the_gone_and_the_leaving_are_left_out_and_told_why() -> None:
    roster, promises = roster_of(5)
    roster.gone["p3"] = Gone("it is silent", 1.0)
    del promises["p3"]
    roster.leaving["p1"] = "it has other plans"
    decided = next_decree(roster, promises, founders=5)
    assert decided.view.ids == ("p0", "p2", "p4")
    assert (decided.view.generation, decided.view.started) == (8, True)
    assert decided.departed == (Departed("p1", "it has other plans", True), Departed("p3", "it is silent", False))
    assert (decided.base.number, decided.donors) == (3, ("p0", "p2", "p4"))


@pytest.mark.parametrize(
    ("roles", "starts"), [("ss", False), ("ws", True), ("ww", False), ("wws", True), ("sss", False)]
)
def test_a_run_starts_with_as_many_servers_and_workers_as_it_is_to_have(roles: str, starts: bool) -> None:
    roster, promises = roster_of(len(roles), started=False)
    with_roles = [
        replace(member, attributes=Attributes(role=SERVER if role == "s" else "", data_shard=place))
        for place, (member, role) in enumerate(zip(roster.view.members, roles, strict=True))
    ]
    roster.view = View(7, tuple(with_roles), False)
    assert next_decree(roster, promises, founders=2, servers=1).view.started is starts


def test_all_go_on_from_the_last_round_that_may_be_committed() -> None:
    """Of four, three make a commit: p2 and the two that are silent may have made one."""
    roster, promises = roster_of(4)
    promises["p2"] = promise(result=Version(4, 40))
    del promises["p1"], promises["p3"]
    decided = next_decree(roster, promises, founders=4)
    assert (decided.base.number, decided.donors) == (4, ("p2",))


def test_a_result_that_no_member_can_have_committed_is_not_handed_on() -> None:
    """Else all would depend on the one who has it: should it die before another fetched it, nobody could go on."""
    roster, promises = roster_of(4)
    promises["p2"] = promise(result=Version(4, 40))
    for silent, expected in (("nobody", 3), ("p3", 3)):
        promises.pop(silent, None)
        decided = next_decree(roster, promises, founders=4)
        assert (decided.base.number, set(decided.donors)) == (expected, set(promises)), "p2 has the result before, too"


def test_the_base_of_the_view_is_handed_on_however_few_members_hold_it() -> None:
    roster, promises = roster_of(4)
    roster.base = Version(4, 40)
    promises["p2"] = promise(result=Version(4, 40))
    decided = next_decree(roster, promises, founders=4)
    assert (decided.base.number, decided.donors) == (4, ("p2",))


def test_the_result_that_most_members_hold_is_taken() -> None:
    roster, promises = roster_of(5)
    for peer, fingerprint in (("p0", 1), ("p1", 2), ("p2", 2), ("p3", 3)):
        promises[peer] = promise(result=Version(4, fingerprint))
    assert next_decree(roster, promises, founders=5).donors == ("p1", "p2")


def test_the_only_holder_of_the_result_stays_until_another_member_has_it() -> None:
    roster, promises = roster_of(3)
    del promises["p1"]
    promises["p2"] = promise(result=Version(4, 40))
    roster.leaving = {"p2": ""}
    decided = next_decree(roster, promises, founders=3)
    assert decided.donors == ("p2",)
    assert "p2" in decided.view.ids


def test_a_newcomer_ahead_of_all_counts_before_the_first_round_only() -> None:
    """Before it, a run may be resumed by peers that come in any order; after it, a round that only a stranger has is
    none of ours."""
    for started, expected in ((False, (9, ("p9",))), (True, (3, ("p0", "p1")))):
        roster, promises = roster_of(2, started=started)
        roster.newcomers["p9"] = Introduce(Member("p9", "p9", "", Attributes(data_shard=9), 0), Version(9, 90), 7)
        decided = next_decree(roster, promises, founders=3)
        assert (decided.base.number, decided.donors) == expected
        assert decided.view.started
        assert decided.view.anybody("p9").since == 8  # type: ignore[union-attr]
        assert ("p9" in decided.view.ids) is not started, "later it learns first"


def test_a_newcomer_with_the_same_result_is_a_donor_too_and_need_not_fetch_it() -> None:
    roster, promises = roster_of(2, started=False)
    roster.newcomers["p9"] = Introduce(Member("p9", "p9", "", Attributes(data_shard=9), 0), Version(3, 30), 7)
    assert set(next_decree(roster, promises, founders=2).donors) == {"p0", "p1", "p9"}


def test_a_view_of_a_thousand_real_keys_is_one_message() -> None:
    """And one more than a view holds is not let in."""
    keys = [KeyPair.new().public for _ in range(VIEW_MEMBERS_MAX + 1)]
    members = [
        Member(
            key,
            f"peer-{rank}",
            f"tcp://192.168.100.100:{40_000 + rank}",
            Attributes(role="server", capacity=1 << 40, data_shard=rank),
            7,
            "m" * 36,
            2**61,
        )
        for rank, key in enumerate(keys)
    ]
    assert len(members) > 1000
    view = View(7, (*members[:900], members[900]), True, learners=tuple(members[901:-2]))
    assert view.has_room(members[-2])
    full = replace(view, learners=(*view.learners, members[-2]))
    assert not full.has_room(members[-1])
    decree = Decree(full, Version(2**40, 2**62), full.ids[:64], ())
    for message in (Install(decree), Stale(8, keys[0], full.everybody)):
        header = encode(message, 0, incarnation=2**61, towards=2**61, seq=2**40, channel=MEMBERS)
        assert decode(header, 0).message == message


def test_a_view_never_outgrows_a_message() -> None:
    roster, promises = roster_of(2)
    for index in range(1100):
        member = Member(
            f"{index:064x}", f"peer {index}", f"tcp://[2001:db8::{index:x}]:40000", Attributes(data_shard=index), 0
        )
        roster.newcomers[member.id] = Introduce(member, Version(3, 30), 7)
    decided = next_decree(roster, promises, founders=2)
    assert sum(one.nbytes for one in (*decided.view.members, *decided.view.learners)) <= VIEW_BYTES_MAX
    assert len((*decided.view.members, *decided.view.learners)) == VIEW_MEMBERS_MAX
    version = Version(2**40, 2**62)
    longest = Promise(2**40, 2**40, 2**40, version, version, True, 2**40, decided)
    assert len(encode(longest, 0, incarnation=2**62, towards=2**62, seq=2**40)) < HEADER_BYTES_MAX


@pytest.mark.parametrize(
    ("wanted", "taken", "parts", "given"),
    [
        ([1], [0], 3, [1]),
        ([0], [0], 3, [1]),
        ([0, 0, 0], [], 3, [0, 1, 2]),
        ([7], [0], 3, [1]),
        ([2**60, 5], [0, 1, 2], 4, [3, 0]),
        ([0, 0], [0, 1], 2, [0, 1]),
    ],
)
def test_newcomers_get_a_part_of_the_data_of_their_own_while_there_is_one(wanted, taken, parts, given) -> None:
    newcomers = [Member(f"n{i}", "", "", Attributes(data_shard=part), 0) for i, part in enumerate(wanted)]
    staying = [Member(f"s{i}", "", "", Attributes(data_shard=part), 1) for i, part in enumerate(taken)]
    placed = {member.id: member.attributes.data_shard for member in with_data_shards(newcomers, staying, parts, 5)}
    assert sorted(placed.values()) == sorted(given)
    assert all(0 <= part < parts for part in placed.values())


def test_a_reason_is_one_printable_line_of_a_bounded_length() -> None:
    assert in_words("line one\nline two\x00\x1b[2J") == "line one line two  [2J"
    assert len(in_words("ß" * 10_000).encode()) <= 1024
