"""An evaluation that was made when its peer is stopped: the best model goes by it, so the records have it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from simulated import no_complaints  # noqa: F401
from two_peers import TwoPeers

from samovar.peers.records.records import EventRecord, ExchangeRecord
from samovar.peers.records.tally import Tally
from samovar.peers.run_settings.settings import Settings
from samovar.peers.training.stop import Stop
from samovar.sims.scenarios.toy import toy_task

WAYS: list[dict[str, Any]] = [
    {"period": "8"},
    {"protocol": "gossip", "period": "8"},
    {"protocol": "gossip", "period": "8", "algorithm": "ad_psgd"},
    {"protocol": "parameter_server", "servers": 1},
]


@pytest.mark.parametrize("own", WAYS, ids=str)
@pytest.mark.parametrize("stops_at", [1, 2, 3])
def test_an_evaluation_amid_which_a_run_is_stopped_has_a_record(own: dict[str, Any], stops_at: int) -> None:
    stop, measured = Stop(), list[float]()

    def evaluate(model: Any) -> float:
        measured.append(float(len(measured)))
        if len(measured) == stops_at:
            stop.set()
        return measured[-1]

    task = replace(toy_task(), evaluate=evaluate, metrics={"made": "higher"})
    settings = Settings(peers=2, steps=80, evaluate_every=2, device="cpu", **own)
    run = TwoPeers(task, settings, stop=stop)
    told = [one for one in run.records if isinstance(one, ExchangeRecord) and one.metrics]
    assert len(measured) >= stops_at
    assert sorted(one.metrics["made"] for one in told) == measured
    latest = max(told, key=lambda one: (one.version, one.time_s))
    tally = Tally(run.records)
    assert (tally.metrics, tally.metrics_at) == (latest.metrics, latest.version)
    assert tally.metrics_of == (latest.peer if own.get("protocol") == "gossip" else "")


def test_a_peer_that_is_stopped_amid_an_evaluation_writes_one_checkpoint() -> None:
    stop = Stop()
    task = replace(toy_task(), evaluate=lambda model: stop.set() or 0.5)
    settings = Settings(peers=1, steps=80, period="8", evaluate_every=1, checkpoint_every_s=0.0, device="cpu")
    run = TwoPeers(task, settings, stop=stop)
    saved = [one.why for one in run.records if isinstance(one, EventRecord) and one.event == "checkpoint"]
    assert saved == ["round 1"]
