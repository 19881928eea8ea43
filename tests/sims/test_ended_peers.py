"""Peers that end in a simulation: when they were lost, which are back, and nothing that they tell afterwards."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from test_trainer import noisy_task

from samovar.peers.cli.final_table import headline
from samovar.peers.cli.output import Output
from samovar.peers.records.records import EventRecord, Record
from samovar.peers.records.result import Result
from samovar.peers.run_settings.settings import Settings
from samovar.sims.run import Play, play
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World


def of_five(*faults: Fault) -> Scenario:
    settings = Settings(device="cpu", link="100mbit,5ms", peers=5, period="2", steps=300, patience_s=1.0, report=False)
    plain = Scenario.plain(settings)
    return replace(plain, groups=(replace(plain.groups[0], peers=5, step_s=0.05),), faults=faults)


def played(scenario: Scenario, folder: Path) -> Result:
    wished = Play(task=noisy_task(), scenario=scenario, folder=folder)
    return play(wished, Output(steps=wished.steps, columns=wished.columns, quiet=True))[0]


def test_a_peer_that_has_crashed_tells_nothing_when_the_world_ends() -> None:
    """Its timers were held back, and run when the world cleans up."""
    records: list[Record] = []
    run_virtual(World(noisy_task(), of_five(Fault(kind=Kind.CRASH, who=(4,), at_s=1.5)), records.append).run())
    of_it = [record for record in records if record.peer == "4"]
    assert 0 < max(record.time_s for record in of_it) < 2.0
    assert not [one for one in records if isinstance(one, EventRecord) and one.event in ("stalled", "goes_on")]


def test_a_result_tells_when_a_peer_crashed_and_which_of_the_lost_are_back(tmp_path: Path) -> None:
    crash = Fault(kind=Kind.CRASH, who=(1,), at_s=2.0)
    restart = Fault(kind=Kind.RESTART, who=(4,), at_s=4.0, for_s=3.0)
    result = played(of_five(crash, restart), tmp_path)
    assert [(one.peer, one.back) for one in result.lost] == [("1", False), ("4", True)]
    assert result.lost[0].when < 2.0 < 4.0 < result.lost[1].when
    assert "5 peers, 2 lost, 1 of them back" in headline(result)
