"""What a member makes of a later view that it is told of, when those that tell are restarted, late or ahead."""

import asyncio

import pytest
from conformance import over
from puppet import NOTHING, Puppet, decree, with_puppet
from simulated import PATIENCE_S, no_complaints  # noqa: F401

from samovar.protocols.channel import Envelope
from samovar.protocols.members.echoes import mark_of
from samovar.protocols.members.errors import Expelled, NoQuorum
from samovar.protocols.members.messages import MEMBERS, Adopted, Confirm, Confirmed, Install, Promise, Stale
from samovar.protocols.members.view import Adoption

ADOPTED = 2


def test_the_words_of_restarted_members_count_for_a_decree_as_their_votes_do() -> None:
    """Both others were restarted and vote on behalf of their former lives: one tells that the view holds, the other
    that it has adopted the decree."""

    async def scene(puppet: Puppet) -> None:
        membership = puppet.walker.membership
        following = decree(4, membership.view.members)
        membership._change.acceptor._adopted = Adoption(1, following, "p1")
        for other in puppet.others:
            membership._roster.answers(other, former=True)
        first = over(puppet.others["p0"], MEMBERS)

        def confirm(envelope: Envelope) -> None:
            first.post(envelope.sender, Confirmed(mark_of(following), ADOPTED))

        first.on(Confirm, confirm)
        await puppet.tell("p2", Install(following))
        assert membership.view.generation == 4

    with_puppet(scene)


def test_a_member_that_hears_last_of_an_earlier_view_keeps_what_it_was_told_of_a_later_one() -> None:
    """It was told that it is not in the fifth view, and goes on to the fourth, in which it waits for that teller."""

    async def scene(puppet: Puppet) -> None:
        membership = puppet.walker.membership
        await puppet.tell("p0", Stale(5, "p0", ("p0",)))
        assert membership.failed is None, "one member's word alone is not enough"
        membership._take(decree(4, membership.view.members[:2]), "p2")
        await asyncio.sleep(PATIENCE_S / 2)
        assert isinstance(membership.failed, Expelled)

    with_puppet(scene)


@pytest.mark.parametrize("answer", [Promise(2, 1, 1, NOTHING, NOTHING, True, 0, None), Adopted(2, 1, 1)])
def test_an_answer_to_a_question_of_a_past_view_is_answered_by_the_present_one(answer: Promise | Adopted) -> None:
    """Nothing else may tell its sender: the proposer has gone on, and asks no more."""

    async def scene(puppet: Puppet) -> None:
        told = list[int]()
        over(puppet.others["p2"], MEMBERS).on(
            Install, lambda envelope: told.append(envelope.message.decree.view.generation)
        )
        await asyncio.sleep(1.0)
        told.clear()  # all members pass a new view on
        await puppet.tell("p2", answer)
        assert told == [3]

    with_puppet(scene)


def test_a_member_that_has_failed_for_good_does_not_join_again_by_the_word_of_another() -> None:
    async def scene(puppet: Puppet) -> None:
        membership = puppet.walker.membership
        membership._roster.fail(NoQuorum("1 of 3 peers are left"))
        membership._take(decree(4, (membership.view.members[0], membership.view.members[2])), "p0")
        assert isinstance(membership.failed, NoQuorum)

    with_puppet(scene)
