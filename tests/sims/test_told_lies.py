"""Hostile members that repeat one lie: it is told, it is none of the others' words, and it costs them few rounds."""

import asyncio
from dataclasses import replace

import pytest
from tiers import one_in

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.members.echoes import RANKS
from samovar.protocols.members.messages import Adopt, Install, Introduce, Propose
from samovar.protocols.wire.frames import encode
from samovar.sims.scenarios.lies import Lie
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.promises import broken
from samovar.sims.world import repeated_lies
from samovar.sims.world.event_log import Fell, Heard
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.repeated_lies import REPEATED, telling
from samovar.sims.world.world import World

PEERS, LIAR = 5, 3
PROPOSED = {Lie.UNKNOWN_BASE, Lie.PAST_BASE, Lie.NEXT_VIEW, Lie.FALSE_VIEW, Lie.TO_ONE, Lie.TO_OTHERS, Lie.SWAPPED}


def lied(lie: Lie) -> Scenario:
    """Rounds of half a second, of which one member lies for twelve seconds."""
    settings = Settings(peers=PEERS, period="1", steps=30, seed=3, patience_s=2.0, device="cpu", step_time="0.5s")
    return replace(
        Scenario.plain(settings), faults=(Fault(kind=Kind.HOSTILE, who=(LIAR,), at_s=3.0, for_s=10.0, lie=lie),)
    )


def run(scenario: Scenario) -> World:
    world = World(toy_task(), scenario)
    run_virtual(world.run(within_s=300.0), seed=scenario.settings.seed)
    return world


@pytest.mark.parametrize("lie", one_in(7, Lie))
def test_no_lie_that_a_member_repeats_breaks_a_promise(lie: Lie) -> None:
    world = run(lied(lie))
    assert broken(world.scenario, world.log.entries) is None
    assert world.log.reached[REPEATED] == world.log.reached[f"lie: {lie}"] == 1


def test_a_lie_is_told_while_the_fault_lasts_and_no_longer() -> None:
    world = run(lied(Lie.TO_ONE))
    ((fell_s, until_s),) = [
        (time_s, event.until_s) for time_s, _, event in world.log.entries if isinstance(event, Fell)
    ]
    told_s = [
        time_s
        for time_s, _, event in world.log.entries
        if isinstance(event, Heard) and event.sender == f"peer-{LIAR}" and isinstance(event.what, Propose)
    ]
    assert len(told_s) > 10
    assert until_s is not None
    assert fell_s <= min(told_s) <= max(told_s) <= until_s + 0.5


def test_every_lie_is_told_to_others_in_messages_that_can_be_sent() -> None:
    world = World(toy_task(), replace(lied(Lie.FOREIGN), faults=()))
    told: dict[tuple[int, Lie], list[tuple[str, object]]] = {}

    async def main() -> None:
        lives = asyncio.create_task(world.run(within_s=300.0))
        await asyncio.sleep(3.0)
        for index in (0, LIAR):
            life = world.life(index)
            assert life is not None
            told.update({(index, lie): telling(lie, life, 7) for lie in Lie})
        await lives

    run_virtual(main(), seed=3)
    for lie in Lie:
        messages = told[LIAR, lie]
        assert {to for to, _ in messages} <= {f"peer-{index}" for index in range(PEERS) if index != LIAR}
        assert all(encode(one, 0, incarnation=1, towards=2, seq=3, channel="members") for _, one in messages)
        assert bool(told[0, lie]) is (lie not in PROPOSED), "the most senior member may lead anyway"
    others = {to for to, _ in told[LIAR, Lie.TO_OTHERS]}
    assert others == {"peer-1", "peer-2", "peer-4"}
    ((to, _),) = told[LIAR, Lie.TO_ONE]
    assert to in others
    anew = [(to, one.member.id) for to, one in told[LIAR, Lie.REST_ANEW] if isinstance(one, Introduce)]
    assert len(anew) == 4 * 3
    assert all(to != member for to, member in anew)
    swapped = told[LIAR, Lie.SWAPPED]
    adopted = {to: one.decree for to, one in swapped if isinstance(one, Adopt)}
    holds = {to: one.decree for to, one in swapped if isinstance(one, Install)}
    assert adopted.keys() == holds.keys()
    assert all(adopted[to] != holds[to] for to in adopted)
    ballots = {one.ballot % RANKS for _, one in swapped if isinstance(one, Adopt)}
    assert ballots == {LIAR}, "under its own ballots"


def test_members_that_cannot_speak_tell_nothing() -> None:
    settings = lied(Lie.FOREIGN)
    few = replace(settings.settings, peers=2)
    world = run(replace(Scenario.plain(few), faults=(replace(settings.faults[0], who=(1,)),)))
    assert world.log.reached[REPEATED] == 0


def test_an_error_of_a_lie_ends_the_simulation(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*what: object) -> list[tuple[str, object]]:
        raise ZeroDivisionError

    monkeypatch.setattr(repeated_lies, "telling", fails)
    with pytest.raises(ZeroDivisionError):
        run(lied(Lie.FOREIGN))


def test_seeds_draw_members_that_lie_and_do_not_lead_and_nothing_else_goes_wrong() -> None:
    drawn = [one for one in (draw(seed, "allreduce") for seed in range(300)) if any(fault.lie for fault in one.faults)]
    assert 15 < len(drawn) < 40
    for scenario in drawn:
        assert scenario.peers >= 4
        assert scenario.has_hostile_member
        assert all(fault.lie and fault.who != (0,) for fault in scenario.faults)
        assert not scenario.buggify
        assert not scenario.arrivals
    assert len({fault.lie for scenario in drawn for fault in scenario.faults}) > 10
