"""Whoever was let in can neither fill, crash nor freeze the others: a hostile key, and a hostile member."""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from company import Company, Walker
from conformance import over
from simulated import endpoint_in, simulate

from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.misbehaviour import Refusal, Trust
from samovar.protocols.link.table import GUESTS_MAX
from samovar.protocols.local_sgd.commit import Commit
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members import view_change as change
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.invites import Vouch
from samovar.protocols.members.messages import MEMBERS, Install
from samovar.protocols.members.view import Decree, Version, View
from samovar.protocols.transfer.chunks import EARLY_BYTES_PER_PEER_MAX, Chunk
from samovar.protocols.transfer.snapshot_transfer import Part

MIB, FAR = 1 << 20, 2**30
GENERATION = 3
"""Of three that found a run."""
STRANGER = "p7"
"""A key that is admitted and no member."""


def play(attack: Callable[[Company], Awaitable[None]], rounds: int = 1000) -> Company:
    """Three peers make rounds, and go on to after `attack`."""

    async def main() -> Company:
        company = Company(3, rounds=rounds, train_s=lambda index: 0.5)
        await company.gathered(2)
        await attack(company)
        reached = company[0].sgd.state.round + 3
        await company.until(lambda: all(walker.sgd.state.round >= reached for walker in company.walkers))
        await company.over()
        return company

    return simulate(main(), within_s=2_000.0)


async def caller(company: Company, life: int) -> Endpoint:
    company[0].endpoint.admit(STRANGER)
    endpoint = endpoint_in(company.network, STRANGER, seed=life)
    await endpoint.open()
    endpoint.admit("p0")
    endpoint.dial("p0", "sim://p0")
    return endpoint


async def flooded(company: Company, life: int, message: Callable[[int], object]) -> int:
    """As many MiB as there is credit for, to p0, which then hears no more of this life; what waits there by then."""
    endpoint = await caller(company, life)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(20):
            for number in range(64):
                await over(endpoint, LOCAL_SGD).send("p0", message(number), bytes(MIB))
    held = waiting_bytes(company[0])
    endpoint.abort()
    return held


def waiting_bytes(walker: Walker) -> int:
    inbox, unclaimed = walker.sgd._reducer.inbox, walker.endpoint.reception._unclaimed
    waiting = [one for senders in inbox._waiting.values() for of in senders.values() for one in of]
    assert sum(one.cost for one in waiting) == inbox._waiting_bytes.total()
    return sum(one.cost for one in (*waiting, *(one for of in unclaimed.values() for one in of)))


def early(number: int) -> object:
    return Chunk(FAR, number, 0, 0, 0, MIB // 4)


def of_now(number: int) -> object:
    return Chunk(GENERATION, 1 + number, 0, 0, 0, MIB // 4)


def unasked(number: int) -> object:
    return Part(FAR, 1, number, 0)


@pytest.mark.parametrize(("message", "most"), [(early, EARLY_BYTES_PER_PEER_MAX), (of_now, 0), (unasked, 5 * MIB)])
def test_repeated_messages_of_a_key_do_not_pile_up(message: Callable[[int], object], most: int) -> None:
    held: list[int] = []

    async def attack(company: Company) -> None:
        assert company[0].membership.view.generation == GENERATION
        for life in range(5):
            held.append(await flooded(company, life, message))
        await flooded(company, 5, lambda number: Chunk(1, 1, 0, 0, 0, MIB // 4))  # and what is old
        await asyncio.sleep(10)
        held.append(waiting_bytes(company[0]))
        assert all(turn[0] < FAR for turn in company[0].sgd._reducer.inbox._waiting), "nor where it waited"

    play(attack)
    assert max(held) <= most + MIB // 2, "of one life of that key, and not of all"
    assert held[-1] < MIB // 2, "nothing is left of a key that is gone"


def test_a_member_that_is_no_coordinator_commits_nothing() -> None:
    async def attack(company: Company) -> None:
        junior, victim = company[2], company[1]
        key = (victim.membership.view.generation, victim.sgd.state.round + 2)
        assert company[0].id == victim.membership.coordinator
        over(junior.endpoint, LOCAL_SGD).post(victim.id, Commit(*key, 4711))
        await asyncio.sleep(0.3)
        assert victim.sgd._verdicts.on(key) is None

    play(attack)


def test_no_view_is_taken_after_which_there_could_be_no_other() -> None:
    async def attack(company: Company) -> None:
        view = company[1].membership.view
        far = Decree(View(2**63 - 1, view.members, True), Version(1, 0), view.ids, ())
        over(company[2].endpoint, MEMBERS).post("p1", Install(far))
        await asyncio.sleep(1.0)
        assert company[1].membership.view.generation < 100

    play(attack)


def test_an_error_while_a_change_is_led_ends_that_change_and_not_the_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, told = change.next_decree, list[str]()

    def fails_once(*arguments: object) -> Decree:
        if not told:
            raise OverflowError("a number of somebody's")
        return usual(*arguments)  # type: ignore[arg-type]

    async def attack(company: Company) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda loop, context: told.append(str(context["exception"])))
        monkeypatch.setattr(change, "next_decree", fails_once)
        company.walkers.pop().crash()
        await company.until(lambda: len(company[0].membership.view.ids) == 2)

    play(attack)
    assert told == ["a number of somebody's"]


def test_a_name_is_short_and_unique() -> None:
    async def main() -> None:
        company = Company(3, rounds=1000, train_s=lambda index: 0.5)
        await company.gathered(2)
        twin, long = company.walker(3), company.walker(4)
        for walker, name in ((twin, "p1"), (long, "n" * 65)):
            walker.membership._roster.me = replace(walker.membership.me, name=name)
            company.walkers.append(walker)
            walker.start("p0")
        await company.until(lambda: "p3" in company[0].membership.view.ids and long.error is not None)
        assert [member.name for member in company[0].membership.view.members if member.id == "p3"] == ["p1-p3"]
        assert "its name has 65 letters, at most 64 are taken" in str(long.error)
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_the_keys_that_members_vouch_for_are_bounded() -> None:
    async def main() -> None:
        company = Company(2, rounds=1000, train_s=lambda index: 0.5, invitation=Invitation("guest"))
        await company.gathered(1)
        victim, admitted = company[0], list[str]()
        victim.endpoint.admit = lambda peer, *, guest=None: admitted.append(peer)  # type: ignore[method-assign]
        over(company[1].endpoint, MEMBERS).post("p0", Vouch("k" * 65, "guest"))
        for number in range(10_050):
            over(company[1].endpoint, MEMBERS).post("p0", Vouch(f"key {number}", "guest"))
            await asyncio.sleep(0.01)
        assert len(admitted) == 10_000
        assert "k" * 65 not in admitted
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_refusals_of_a_sender_are_told_at_a_bounded_rate() -> None:
    trust, told = Trust(), list[tuple[float, Refusal]]()
    chance, sent = random.Random(1), 0
    for interval in range(40):
        now = 5.0 * interval
        trust.on_refused[:] = [lambda refusal, now=now: told.append((now, refusal))]  # type: ignore[misc]
        for _ in range(chance.randrange(1000)):
            if not trust.ignores("h"):
                trust.refuse("h", "sent a header that cannot be taken")
                trust.fault("h")
            sent += 1
        trust.forgive(now)
    times = [now for now, _ in told]
    assert all(after - before >= 30.0 for before, after in pairwise(times))
    assert 6 <= len(told) <= 7
    assert 0.8 * sent < sum(refusal.times for _, refusal in told) <= sent
    assert told[-1][1].cut_off
    assert str(told[-1][1]).endswith(
        "messages of the key h not taken, and it is cut off: it sent a header that cannot be taken"
    )


def test_a_failed_listener_to_refusals_stops_no_other_listener_and_no_heartbeat() -> None:
    async def main() -> None:
        trust, told, complaints = Trust(), list[Refusal](), list[str]()
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context["message"]))
        trust.on_refused += [lambda refusal: 1 / 0, told.append]  # type: ignore[list-item, func-returns-value]
        for number in range(GUESTS_MAX):
            for _ in range(16):
                trust.refuse(f"k/{number}", "said what a guest may not")
                trust.fault(f"k/{number}")
        assert trust.ignores("k/64"), "all guests are cut off together, those too of whom nothing is known"
        for interval in range(200):
            trust.forgive(5.0 * interval)
        assert {refusal.peer for refusal in told} == {f"k/{number}" for number in range(GUESTS_MAX)}
        assert len(complaints) == len(told)

    simulate(main())


def test_newcomers_that_come_and_go_without_end_cost_a_tenth_of_the_time() -> None:
    """Keys by the dozen that join, are let in, and are gone a second later, over links that make a change slow."""
    span_s = 60.0

    async def main(*, attacked: bool) -> tuple[float, int]:
        company = Company(3, rounds=100_000, link="10mbit,100ms", train_s=lambda index: 0.5)
        await company.gathered(2)
        company.peers_max = 15
        began, first = asyncio.get_running_loop().time(), company[0].sgd.state.round
        samples, changing, life = 0, 0, 0
        while asyncio.get_running_loop().time() < began + span_s:
            if attacked and samples % 10 == 0:
                life += 1
                hostile = company.add(3 + life % 12, f"p{life % 3}", life=life)
                asyncio.get_running_loop().call_later(1.0, hostile.crash)
            await asyncio.sleep(0.03)
            samples += 1
            changing += not company[1].membership.settled
        made = company[0].sgd.state.round - first
        await company.over()
        return changing / samples, made

    (_, usual), (share, made) = (simulate(main(attacked=attacked), within_s=2_000.0) for attacked in (False, True))
    assert 0.02 < share <= 0.1 + 3.0 / span_s
    assert made >= 0.8 * usual


def test_a_key_that_comes_anew_again_and_again_is_let_in_later_each_time() -> None:
    """In three minutes after the first one it changes the view half as often at most as in that."""

    async def main() -> list[int]:
        company, generations = Company(3, rounds=100_000, train_s=lambda index: 0.5), list[int]()
        await company.gathered(2)
        for life in range(241):
            if life % 60 == 0:
                generations.append(company[0].membership.view.generation)
            hostile = company.add(3, "p0", life=1 + life)
            await asyncio.sleep(1.0)
            hostile.crash()
        await company.over()
        return generations

    began, early, *_, late = simulate(main(), within_s=2_000.0)
    assert 4 <= early - began <= 30
    assert late - early <= (early - began) / 2
