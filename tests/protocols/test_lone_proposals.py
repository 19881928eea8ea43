"""A member that does not lead proposes to some of the others, and says nothing more: the others go on."""

import asyncio
from collections.abc import Callable

import pytest
from conformance import over
from puppet import Puppet, decree, with_puppet
from simulated import PATIENCE_S, simulate
from test_swapped_words import Crowd, adopts_at_once

from samovar.protocols.channel import Envelope
from samovar.protocols.members.echoes import RANKS
from samovar.protocols.members.messages import MEMBERS, Behind, Install, Propose
from samovar.protocols.stalls.messages import STALLS, Stalled
from samovar.protocols.stalls.works import EVALUATION

SPAN_S = 60.0
P2 = RANKS + 2
"""A ballot of p2, the third of the view's members."""


def propose(crowd: Crowd, victim: str) -> None:
    crowd.say.post(victim, Propose(crowd.view.generation, crowd.ballot))


def adopt(crowd: Crowd, victim: str) -> None:
    crowd.proposes(crowd.decree(0), victim)


@pytest.mark.parametrize("n", [4, 7])
@pytest.mark.parametrize("ask", [propose, adopt])
def test_a_member_that_proposes_to_one_other_and_says_nothing_more_stops_no_rounds(
    n: int, ask: Callable[[Crowd, str], None]
) -> None:
    async def play() -> None:
        crowd = Crowd(n)
        company = await crowd.gathered()
        ask(crowd, crowd.honest[1].id)
        await crowd.stays_together()
        await company.over()

    simulate(play(), within_s=10 * PATIENCE_S)


def rounds_beside(ask: Callable[[Crowd, str], None], *, to: slice) -> int:
    """Of five, in a minute, in which the last asks these honest ones twice a second, under ever higher ballots."""

    async def play() -> int:
        crowd = Crowd(5)
        company = await crowd.gathered()
        began = company[0].sgd.state.round
        for _ in range(round(2 * SPAN_S)):
            crowd.view, crowd.ballot = company[0].membership.view, crowd.ballot + RANKS
            for one in crowd.honest[to]:
                ask(crowd, one.id)
            await asyncio.sleep(0.5)
        made = company[0].sgd.state.round - began
        await company.over()
        return made

    made: int = simulate(play(), within_s=2_000.0)
    return made


def test_a_member_that_proposes_to_the_others_and_not_to_the_coordinator_keeps_them_from_few_rounds() -> None:
    """The coordinator hears of it, and leads, while the proposer has each of the others deny its ballots."""
    usual = rounds_beside(propose, to=slice(0, 0))
    assert usual > 50
    assert rounds_beside(propose, to=slice(1, None)) >= 0.7 * usual


def heard_by_p0(puppet: Puppet) -> list[object]:
    """The proposals that p1 sends to p0, the coordinator, from now on."""
    heard: list[object] = []

    def hear(envelope: Envelope) -> None:
        heard.append(envelope.message)

    over(puppet.others["p0"], MEMBERS).on(Propose, hear)
    return heard


def test_a_proposal_is_passed_on_to_the_coordinator_until_the_view_changes() -> None:
    async def scene(puppet: Puppet) -> None:
        heard, membership = heard_by_p0(puppet), puppet.walker.membership
        await puppet.tell("p2", Propose(3, P2))
        await asyncio.sleep(2.5 * PATIENCE_S)
        assert heard == [Propose(3, P2)] * 3
        membership._take(decree(4, membership.view.members), "p0")
        await asyncio.sleep(2 * PATIENCE_S)
        assert len(heard) == 3

    with_puppet(scene)


def test_a_proposal_of_the_coordinator_is_passed_on_to_nobody() -> None:
    async def scene(puppet: Puppet) -> None:
        heard = heard_by_p0(puppet)
        await puppet.tell("p0", Propose(3, RANKS))
        await asyncio.sleep(2 * PATIENCE_S)
        assert heard == []

    with_puppet(scene)


def test_a_member_that_takes_the_coordinator_for_gone_passes_a_proposal_on_to_it() -> None:
    async def scene(puppet: Puppet) -> None:
        heard, membership = heard_by_p0(puppet), puppet.walker.membership
        membership.suspect("p0", "it was busy")
        assert membership.coordinator != "p0"
        await puppet.tell("p2", Propose(3, P2))
        await asyncio.sleep(PATIENCE_S)
        assert Propose(3, P2) in heard

    with_puppet(scene)


def test_a_member_that_is_left_out_by_the_proposer_of_a_view_is_told_of_it_by_the_others() -> None:
    """It was asked for nothing, and told of no view. It only hears that others have adopted a decree."""

    async def play() -> None:
        crowd = Crowd(5)
        company = await crowd.gathered()
        adopts_at_once(*crowd.honest)
        others = [walker.id for walker in crowd.honest[1:]]
        decree = crowd.decree(0)
        crowd.proposes(decree, *others)
        await asyncio.sleep(0.2)
        for other in others:
            crowd.say.post(other, Install(decree))
        await company.until(lambda: all(walker.membership.view == decree.view for walker in crowd.honest))
        await company.over()

    simulate(play(), within_s=4 * PATIENCE_S)


def test_a_member_that_hears_of_a_later_generation_asks_for_the_view_after_a_patience() -> None:
    async def scene(puppet: Puppet) -> None:
        heard: list[object] = []
        over(puppet.others["p2"], MEMBERS).on(Behind, lambda envelope: heard.append(envelope.message))
        membership, said = puppet.walker.membership, Stalled(4, 1, EVALUATION, "", 1.0, 1.0, False)
        over(puppet.others["p2"], STALLS).post("p1", said)
        await asyncio.sleep(0.5 * PATIENCE_S)
        assert heard == []
        await asyncio.sleep(PATIENCE_S)
        assert heard == [Behind(3)]
        over(puppet.others["p2"], STALLS).post("p1", said)
        await asyncio.sleep(0.5 * PATIENCE_S)
        membership._take(decree(4, membership.view.members), "p0")
        await asyncio.sleep(PATIENCE_S)
        assert heard == [Behind(3)], "it is there"

    with_puppet(scene)


def test_a_member_asks_all_that_name_a_later_generation() -> None:
    async def scene(puppet: Puppet) -> None:
        heard: list[str] = []

        def hear(name: str) -> Callable[[Envelope], None]:
            return lambda envelope: heard.append(name)

        for name in ("p0", "p2"):
            over(puppet.others[name], MEMBERS).on(Behind, hear(name))
            over(puppet.others[name], STALLS).post("p1", Stalled(4, 1, EVALUATION, "", 1.0, 1.0, False))
        await asyncio.sleep(1.5 * PATIENCE_S)
        assert {*heard} == {"p0", "p2"}

    with_puppet(scene)
