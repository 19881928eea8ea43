"""What a member makes of others that are lost, late, restarted or behind, message by message."""

import asyncio
from dataclasses import replace
from typing import Any

from company import Company
from conformance import over
from puppet import NOTHING, Puppet, decree, with_puppet
from simulated import PATIENCE_S, endpoint_in, no_complaints, simulate  # noqa: F401

from samovar.protocols.members.admission import _Host
from samovar.protocols.members.attributes import SERVER, Attributes
from samovar.protocols.members.edges import Reaches
from samovar.protocols.members.errors import Expelled
from samovar.protocols.members.messages import (
    MEMBERS,
    Install,
    Introduce,
    Join,
    Promise,
    Refused,
    Suspicion,
    Uninvited,
)
from samovar.protocols.members.removals import removal_of
from samovar.protocols.members.view import Member


def test_a_lost_server_is_to_be_started_anew_by_serve_and_a_lost_worker_by_join() -> None:
    def advice(role: str, *, left: bool = False) -> str:
        return removal_of(Member("k", "n", "sim://k", Attributes(role=role), 1), 1.0, "why", left=left).advice

    assert advice(SERVER).endswith("else start it anew with the join line, with serve in place of join")
    assert advice("").endswith("else start it anew with the join line")
    assert advice(SERVER, left=True) == ""


def test_a_member_that_has_begun_a_new_life_is_not_worked_with_in_the_next_view_either() -> None:
    """It is let in anew by the view after that."""

    async def scene(puppet: Puppet) -> None:
        membership = puppet.walker.membership
        members, roster = membership.view.members, membership._roster
        roster.newcomers["p2"] = Introduce(replace(members[2], life=99), NOTHING, 3)
        membership._take(decree(4, members), "p0")
        assert roster.gone["p2"].why == "it joins anew"

    with_puppet(scene)


def test_a_promise_shows_that_its_sender_is_there_however_late_it_comes() -> None:
    async def scene(puppet: Puppet) -> None:
        roster = puppet.walker.membership._roster
        roster.suspect("p2", "a whim")
        late = Promise(3, 1, 1, NOTHING, NOTHING, True, 0, None)
        await puppet.tell("p2", late)
        assert "p2" not in roster.gone

    with_puppet(scene)


def test_a_coordinator_that_says_it_was_restarted_is_one_no_more() -> None:
    """It says so unasked, before this member has asked for anything under a ballot."""

    async def scene(puppet: Puppet) -> None:
        membership = puppet.walker.membership
        assert membership.coordinator == "p0"
        await puppet.tell("p0", Promise(3, 0, 0, NOTHING, NOTHING, True, 0, None, former=True))
        assert membership.coordinator == "p1"
        assert membership._roster.former == ["p0"], "its vote counts"

    with_puppet(scene)


def test_nobody_waits_for_a_restarted_member_that_is_silent_although_it_has_a_vote() -> None:
    async def scene(puppet: Puppet) -> None:
        roster = puppet.walker.membership._roster
        roster.answers("p2", former=True)
        assert roster.former == ["p2"]
        roster.is_silent("p2", "it has not answered")
        assert roster.former == []

    with_puppet(scene)


def test_a_member_that_suspects_another_in_a_view_that_is_over_is_sent_the_present_one() -> None:
    async def scene(puppet: Puppet) -> None:
        told = list[int]()
        over(puppet.others["p2"], MEMBERS).on(
            Install, lambda envelope: told.append(envelope.message.decree.view.generation)
        )
        await asyncio.sleep(1.0)
        told.clear()  # all members pass a new view on
        await puppet.tell("p2", Suspicion(2, "p0", "a whim"))
        assert told == [3]

    with_puppet(scene)


def test_a_member_that_lost_the_next_coordinator_too_hears_its_vouchers() -> None:
    async def main() -> None:
        company = Company(5, rounds=10**6, train_s=lambda index: 0.2)
        await company.gathered(1)
        last, generation = company[4].membership, company[4].membership.view.generation
        first, second, *_ = last.view.by_seniority
        last.lost(first, "a whim")
        last.lost(second, "a whim")
        over(company[2].endpoint, MEMBERS).post("p4", Reaches(generation, second))
        await asyncio.sleep(PATIENCE_S / 4)
        assert last._edges._vouchers[second] == {"p2"}
        await company.over()

    simulate(main())


def test_a_coordinator_that_is_lost_a_second_time_in_one_view_is_accused_twice_again() -> None:
    """At once, and after a patience (sweep seed 55)."""

    async def scene(puppet: Puppet) -> None:
        membership, told = puppet.walker.membership, list[Suspicion]()
        over(puppet.others["p2"], MEMBERS).on(Suspicion, lambda envelope: told.append(envelope.message))
        for times in (2, 4):
            membership.lost("p0", "a whim")
            await asyncio.sleep(2 * PATIENCE_S)
            assert [one.peer for one in told] == ["p0"] * times
            await puppet.tell("p0", Promise(3, 1, 1, NOTHING, NOTHING, True, 0, None))
            assert membership.coordinator == "p0", "it is there again"

    with_puppet(scene)


def test_a_newcomer_sent_elsewhere_is_not_turned_away_by_its_former_contact() -> None:
    async def main() -> None:
        company = Company(1)
        newcomer, contact = company.walker(8), endpoint_in(company.network, "p7")
        for endpoint, other in ((newcomer.endpoint, contact), (contact, newcomer.endpoint)):
            await endpoint.open()
            endpoint.dial(other.id, other.address)
        membership = newcomer.membership
        membership._admission._host = _Host("p7", membership.me.life)
        membership._roster.addresses["p7"] = contact.address
        membership._roster.fail(Expelled("p2"))
        over(contact, MEMBERS).post("p8", Uninvited("the invite is used up"))
        await asyncio.sleep(1.0)
        assert isinstance(membership.failed, Expelled)
        assert membership.failed.contact == "p2"
        membership.close()
        for endpoint in (newcomer.endpoint, contact):
            endpoint.abort()

    simulate(main())


def test_a_contact_hears_of_the_view_by_which_a_newcomer_was_removed_before_it_is_asked() -> None:
    """It may not know of that view, and would wait for the newcomer in its own."""

    async def scene(puppet: Puppet) -> None:
        membership, heard = puppet.walker.membership, list[object]()
        host, members = over(puppet.others["p0"], MEMBERS), membership.view.members
        membership._roster.retire()
        membership._admission.overrule(decree(4, (members[0], members[2])))

        def refuse(envelope: Any) -> None:
            heard.append(type(envelope.message))
            host.post("p1", Refused(envelope.message.ask, "not now", False))

        host.on(Install, lambda envelope: heard.append(type(envelope.message)))
        host.on(Join, refuse)
        asking = asyncio.create_task(membership._admission.ask("p0", ready=True))
        await asyncio.wait([asking])
        assert heard == [Install, Join]
        assert "not now" in str(asking.exception())

    with_puppet(scene)
