"""Shares under a membership by SWIM, whose peers take a neighbour that is cut off for dead, and train on without it."""

from dataclasses import replace

import pytest

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.gossip.shares import CameBack
from samovar.sims.scenarios.scenario import Fault, Kind, Moment, Scenario
from samovar.sims.scenarios.toy import toy_task_of
from samovar.sims.sweeps.verdict import run_and_judge
from samovar.sims.world.world import World


@pytest.mark.parametrize("number", [6, 8])
def test_a_share_that_was_taken_before_a_split_does_not_come_back_in_it(number: int) -> None:
    """The taker is cut off as it confirms the share. Its giver declares it dead, and the two meet again."""
    settings = Settings(
        peers=3, steps=120, period="4", protocol="gossip", algorithm="push_sum", topology="complete", membership="swim",
        patience_s=0.5, device="cpu",
    )  # fmt: skip
    cut = Fault(kind=Kind.CUT_OFF, who=("sender",), at_message=Moment("Took", number, sent=True), for_s=2.5)
    plain = Scenario.plain(settings)
    scenario = replace(plain, groups=(replace(plain.groups[0], step_s=0.05),), faults=(cut,))
    world = World(toy_task_of(scenario), scenario)
    _, wrong = run_and_judge(world, within_s=60.0)
    assert wrong is None
    assert world.log.reached["a lost member is back"] > 0
    assert any(isinstance(entry.event, CameBack) for entry in world.log.entries), "those that nobody took"
