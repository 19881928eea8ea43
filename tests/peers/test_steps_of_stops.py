"""The totals of a run tell the local steps that its peers took until they were stopped, each once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from live import ROOT
from loops import begin, network, nothing_runs_on  # noqa: F401
from tiers import one_in
from torch import Tensor, nn
from two_peers import STEP_S, TwoPeers

import samovar
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.records.run import read_run
from samovar.peers.records.tally import Tally
from samovar.peers.report.overview import totals
from samovar.peers.run_settings.settings import Settings
from samovar.peers.script.loop_thread import Background
from samovar.peers.task.task import load_task
from samovar.peers.training.stop import Stop

UNION = load_task(ROOT / "tests/support/tasks/union.py")
WAYS: list[dict[str, Any]] = [
    {},
    {"overlap": True},
    {"codec": "int8"},
    {"protocol": "gossip"},
    {"protocol": "parameter_server", "servers": 1, "algorithm": "downpour:4"},
]


def run(way: Mapping[str, Any], at: int, begun: Mapping[int, Snapshot] | None = None) -> tuple[TwoPeers, int]:
    """Two peers that are stopped amid their local step number `at` of both; and how many they have taken."""
    stop, taken = Stop(), [0]

    def loss(model: nn.Module, batch: Any) -> Tensor:
        taken[0] += 1
        if taken[0] == at:
            stop.set()
        return UNION.loss(model, batch)

    period = {} if "algorithm" in way else {"period": "4"}
    settings = Settings(**{"peers": 2, "steps": 24, "device": "cpu", **period, **way})
    return TwoPeers(replace(UNION, loss=loss), settings, stop=stop, begun=begun), taken[0]


def counted(records: list[Record]) -> int:
    return sum(peer.steps for peer in Tally(records).peers.values())


@pytest.mark.parametrize("at", one_in(3, [2, 7, 17, 18]))
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_totals_have_the_local_steps_that_were_taken_until_a_stop(way: dict[str, Any], at: int) -> None:
    """Also those after a second stop before an exchange, and each once when the run goes on."""
    first, taken = run(way, at)
    assert at <= taken < 48
    assert counted(first.records) == taken
    second, more = run(way, 1, first.kept)
    assert counted([*first.records, *second.records]) == taken + more
    third, rest = run(way, 10**6, {**first.kept, **second.kept})
    assert counted([*first.records, *second.records, *third.records]) == taken + more + rest


def test_the_seconds_of_these_steps_are_in_the_totals_too() -> None:
    """The works of both, of 4 local steps each, had begun."""
    stopped, _ = run({}, 10)
    told = [one for one in stopped.records if isinstance(one, EventRecord) and one.event == "stopped" and one.steps]
    assert [one.compute_s for one in told] == pytest.approx([4 * STEP_S] * 2)
    records = [one for one in stopped.records if isinstance(one, ExchangeRecord)]
    assert sum(one.compute_s for one in Tally(stopped.records).peers.values()) == pytest.approx(
        sum(one.compute_s for one in (*told, *records))
    )


def test_a_stopped_script_counts_the_step_that_raises_stopped(tmp_path: Path) -> None:
    model = network()
    run = begin(tmp_path / "run", period=4)
    optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
    for _ in range(6):
        optimizer.step()
    session, background = run._session, run._background
    assert isinstance(background, Background)

    async def stop() -> None:
        session.stop.set()

    background.call(stop())
    with pytest.raises(samovar.Stopped):
        optimizer.step()
    [peer] = samovar.Result.read(run.folder).peers
    assert (peer.steps, peer.exchanges) == (7, 1)
    [of_report] = totals(read_run(run.folder))
    assert (of_report.steps, of_report.compute_s) == (peer.steps, peer.compute_s)
    [event] = [event for event in samovar.Result.read(run.folder).events if event.event == "stopped"]
    assert event.steps == 3
    assert event.compute_s > 0
