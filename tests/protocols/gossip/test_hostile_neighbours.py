"""A hostile neighbour in a gossip: each bad deed is held against it by name, and the others train on."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from live import ROOT
from tiers import soak

from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.gossip.messages import Form, Given, Published, Want
from samovar.protocols.gossip.mixing import CaughtUp, Mixed
from samovar.protocols.members.errors import NoQuorum
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

VILLAIN, FAR = 1, 2**62
UNION = ROOT / "tests/support/tasks/union.py"
Deed = Callable[[Published], Published]


def nan(one: Published) -> Published:
    return replace(one, vector=torch.full_like(one.vector, torch.nan))


def huge(one: Published) -> Published:
    return replace(one, vector=1e30 * torch.ones_like(one.vector))


def older(one: Published) -> Published:
    return replace(one, round=max(0, one.round - 2))


def standing(one: Published) -> Published:
    return replace(one, round=1, step=4)


def far(one: Published) -> Published:
    return replace(one, round=FAR)


def further(one: Published) -> Published:
    return replace(one, round=FAR, step=FAR)


def ahead(one: Published) -> Published:
    """By no more than it could be."""
    return replace(one, round=20, step=80)


@dataclass
class Told:
    """Of a run: what each honest peer has held against whom, the steps and models of the honest ones at the end, and
    how often one went on from others' models."""

    against: list[tuple[str, str]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    models: list[torch.Tensor] = field(default_factory=list)
    caught_up: int = 0


def turned(life: Life, deed: Deed, *, twice: bool) -> None:
    """From now on this peer gives what the deed makes of its vectors; `twice`: each answer again."""
    giving = life.peer.conversation._neighbours._exchange.giving
    send = giving._send

    def said(peer: str, want: Want, one: Published, number: int) -> None:
        send(peer, want, deed(one), number)
        if twice:
            told = Given(want.ask, one.round, one.step, one.last, int(Form.WHOLE), None, b"", *one.told, 0)
            giving._channel.offer(peer, told, one.vector[:1].numpy().tobytes())

    giving._send = said


def played(deed: Deed, *, twice: bool = False, **settings: Any) -> Told:
    """Five peers, one of which turns hostile amid the run."""
    wished = {"peers": 5, "protocol": "gossip", "topology": "complete", "period": "4", "steps": 80, "device": "cpu"}
    world, told = World(load_task(UNION), Scenario.plain(Settings(**(wished | settings)))), Told()

    begun, ready = asyncio.Event(), set[str]()

    def saw(life: str, event: object) -> None:
        if isinstance(event, Mixed) and event.round == 3:
            ready.add(life)
            if len(ready) == 5:
                begun.set()

    world.log.observers.append(saw)

    async def main() -> None:
        run = asyncio.create_task(world.run(within_s=2_000))
        await begun.wait()
        for life in world.lives:
            if life.index != VILLAIN:
                heard = life.peer.membership.lost

                def lost(peer: str, why: str, heard: Callable[[str, str], None] = heard) -> None:
                    told.against.append((peer, why))
                    heard(peer, why)

                life.peer.membership.lost = lost
        turned(next(life for life in world.lives if life.index == VILLAIN), deed, twice=twice)
        with contextlib.suppress(NoQuorum):  # the hostile one, whom the others do not let in again
            await run

    run_virtual(main(), seed=0)
    told.caught_up = sum(isinstance(entry.event, CaughtUp) for entry in world.log.entries)
    for life in world.lives:
        if life.index != VILLAIN:
            told.steps.append(life.peer.conversation.state.step)
            told.models.append(life.trainer.vector)
    return told


@pytest.mark.parametrize("algorithm", ["d_psgd", *(pytest.param(one, marks=soak) for one in ("push_sum", "ad_psgd"))])
@pytest.mark.parametrize(
    ("deed", "why"),
    [
        (nan, "its model is not finite"),
        (huge, "its model has a norm of"),
        (older, "it gave round"),
        (standing, "it gave round 1 when round"),
        (far, f"it told of round {FAR} after"),
        (further, f"it told of {FAR} local steps in a run of 80"),
    ],
)
def test_a_hostile_neighbour_is_named_and_the_others_train_on(deed: Deed, why: str, algorithm: str) -> None:
    if algorithm == "ad_psgd" and deed in (older, standing):
        pytest.skip("pairs take whichever vector a neighbour has")
    told = played(deed, algorithm=algorithm)
    assert {peer for peer, _ in told.against} == {f"peer-{VILLAIN}"}
    assert any(why in said for _, said in told.against)
    assert told.steps == [80] * 4
    assert all(bool(model.isfinite().all()) and float(model.norm()) < 1e3 for model in told.models)


def test_an_answer_that_is_given_twice_is_taken_once() -> None:
    told, plain = (played(lambda one: one, twice=twice) for twice in (True, False))
    assert told.steps == [80] * 4
    assert all(model.equal(other) for model, other in zip(told.models, plain.models, strict=True))


def test_one_of_two_neighbours_that_claims_to_be_far_ahead_moves_no_peer() -> None:
    told = played(ahead, topology="ring")
    assert told.steps == [80] * 4
    assert told.caught_up == 0
