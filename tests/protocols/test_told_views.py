"""What a member makes of a later view that it is told of, when those that tell are restarted, late or ahead."""

from conformance import over
from puppet import Puppet, decree, with_puppet
from simulated import no_complaints  # noqa: F401

from samovar.protocols.channel import Envelope
from samovar.protocols.members.acceptor import Adoption
from samovar.protocols.members.echoes import mark_of
from samovar.protocols.members.hearsay import Confirm, Confirmed
from samovar.protocols.members.messages import MEMBERS, Install

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
