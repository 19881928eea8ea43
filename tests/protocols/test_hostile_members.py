"""What a member says that no honest one would: it is refused by name, and holds up the others seldom."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from company import Company
from conformance import over
from puppet import Puppet, decree, with_puppet
from simulated import no_complaints, simulate  # noqa: F401

from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members.acceptor import _AHEAD_MAX
from samovar.protocols.members.messages import MEMBERS, Adopted, Install, Promise, Propose, Stale
from samovar.protocols.members.view import Decree, Version, View
from samovar.protocols.shared_memory.arena import Use
from samovar.protocols.transfer.chunks import Chunk
from samovar.protocols.transfer.snapshot_transfer import PART_BYTES, AskManifest

FAR = 2**63 - 1
SPAN_S = 120.0


def rounds_while(attack: Callable[[Company], Awaitable[None]]) -> int:
    """Of three, in two minutes."""

    async def main() -> int:
        company = Company(3, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        began, task = company[0].sgd.state.round, asyncio.create_task(attack(company))
        await asyncio.sleep(SPAN_S)
        task.cancel()
        made = company[0].sgd.state.round - began
        await company.over()
        return made

    return simulate(main(), within_s=2_000.0)


async def nothing(company: Company) -> None: ...


async def proposals(company: Company) -> None:
    """Of the highest ballot that makes sense, twice a second, by one that does not coordinate."""
    while True:
        for other in ("p0", "p1"):
            over(company[2].endpoint, MEMBERS).post(other, Propose(company[2].membership.view.generation, _AHEAD_MAX))
        await asyncio.sleep(0.5)


def test_a_member_that_proposes_again_and_again_keeps_the_others_from_few_rounds() -> None:
    usual = rounds_while(nothing)
    assert usual > 100
    assert rounds_while(proposals) >= 0.7 * usual


def test_a_coordinator_with_proposed_ballots_far_ahead_is_still_followed() -> None:
    async def main() -> None:
        company = Company(4, rounds=1000, train_s=lambda index: 0.5)
        await company.gathered(2)
        generation = company[0].membership.view.generation
        for times in (1, 2):
            over(company[2].endpoint, MEMBERS).post("p0", Propose(generation, times * _AHEAD_MAX))
        await company.until(lambda: company[0].membership.view.generation > generation)
        reached = company[0].sgd.state.round + 3
        await company.until(lambda: company[1].sgd.state.round >= reached)
        assert company[1].membership.coordinator == "p0"
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_a_member_with_proposed_ballots_far_ahead_is_not_given_up_for_its_promise() -> None:
    async def main() -> None:
        company = Company(4, rounds=1000, train_s=lambda index: 0.5)
        await company.gathered(2)
        generation, villain = company[0].membership.view.generation, over(company[2].endpoint, MEMBERS)
        for times in (1, 2):
            villain.post("p1", Propose(generation, times * _AHEAD_MAX))
        await company.until(lambda: company[1].membership._change.promised > _AHEAD_MAX)
        villain.post("p0", Propose(generation, 1))
        await company.until(lambda: company[0].membership.view.generation > generation)
        assert not company[0].membership.removals
        assert "p1" not in company[0].endpoint.refused
        await company.over()

    simulate(main(), within_s=2_000.0)


@pytest.mark.parametrize("kind", [Promise, Adopted])
def test_a_member_that_denies_every_ballot_keeps_no_change_from_being_made(kind: type) -> None:
    async def main() -> None:
        company = Company(4, rounds=1000, train_s=lambda index: 0.5)
        await company.gathered(2)
        acceptor = company[2].membership._change.acceptor
        answer = acceptor._answer

        def deny(to: str, word: Promise | Adopted) -> None:
            answer(to, replace(word, promised=word.ballot + 1) if isinstance(word, kind) else word)

        acceptor._answer = deny  # type: ignore[method-assign]
        late = company.add(4, "p1")
        await company.until(lambda: "p4" in company[0].membership.view.ids)
        reached = company[0].sgd.state.round + 3
        await company.until(lambda: company[1].sgd.state.round >= reached)
        assert late.error is None
        assert {loss.peer for loss in company[0].membership.removals} == {"p2"}
        await company.over()

    simulate(main(), within_s=2_000.0)


@pytest.mark.parametrize("said", ["propose", "install", "stale", "use", "chunk", "state"])
def test_a_member_that_sends_impossible_messages_is_refused_by_name(said: str) -> None:
    async def main() -> None:
        company = Company(3, rounds=1000, train_s=lambda index: 0.5)
        await company.gathered(2)
        victim, villain = company[0], company[2]
        view, round = victim.membership.view, victim.sgd.state.round
        members = View(FAR, view.members, True)
        words = {
            "propose": (Propose(view.generation, FAR), "proposed the ballot"),
            "install": (Install(Decree(members, Version(1, 0), view.ids, ())), "spoke of generation"),
            "stale": (Stale(FAR, "p2", ("p2",)), "spoke of generation"),
            "use": (Use(FAR, 10, all_have_it=True), "spoke of epoch"),
            "chunk": (Chunk(view.generation, round + 100, 0, 0, 0, 1), "sent a chunk of round"),
            "state": (AskManifest(1, 0), "asked for the state over and over"),
        }
        message, why = words[said]
        channel = over(villain.endpoint, MEMBERS if said in ("propose", "install", "stale") else LOCAL_SGD)
        for _ in range(130 if said == "state" else 1):
            await channel.send("p0", message, bytes(4) if said == "chunk" else b"")
        await company.until(lambda: why in victim.endpoint.refused.get("p2", ""))
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_a_newcomer_that_fetches_a_large_state_in_many_pieces_is_refused_nothing() -> None:
    async def main() -> None:
        company = Company(3, rounds=1000, size=16 * PART_BYTES, link="10mbit,20ms", train_s=lambda index: 0.5)
        await company.gathered(1)
        late = company.add(3, "p0")
        await company.until(lambda: "p3" in company[0].membership.view.ids)
        assert all("p3" not in walker.endpoint.refused for walker in company.walkers)
        assert late.error is None
        await company.over()

    simulate(main(), within_s=4_000.0)


def test_a_proposal_that_was_put_off_is_heeded_as_soon_as_its_sender_coordinates() -> None:
    async def main() -> None:
        company = Company(4, rounds=1000, train_s=lambda index: 5.0)
        await company.gathered(1)
        acceptor, generation = company[2].membership._change.acceptor, company[2].membership.view.generation
        heir = next(peer for peer in company[0].membership.view.by_seniority if peer not in ("p0", "p2"))
        acceptor.postponed._due_s[heir] = asyncio.get_running_loop().time() + 1000.0  # it has proposed too often
        over(company[int(heir[1:])].endpoint, MEMBERS).post("p2", Propose(generation, 1 << 20))
        await company.until(lambda: heir in acceptor.postponed._waiting)
        await asyncio.sleep(1.0)
        assert acceptor.promised == 0
        company[2].membership.suspect("p0", "a whim")
        assert company[2].membership.coordinator == heir
        assert acceptor.promised == 1 << 20
        assert not acceptor.postponed._waiting
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_a_proposal_that_was_put_off_and_makes_no_sense_is_a_fault_of_its_sender() -> None:
    async def scene(puppet: Puppet) -> None:
        generation = puppet.walker.membership.view.generation
        await puppet.tell("p2", Propose(generation + 1, 1 << 60))
        assert not puppet.walker.endpoint.refused
        puppet.walker.membership._take(decree(generation + 1, puppet.walker.membership.view.members), "p0")
        await asyncio.sleep(0.1)
        assert "nobody can have come to" in puppet.walker.endpoint.refused["p2"]

    with_puppet(scene)
