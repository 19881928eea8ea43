"""A parameter that is unfrozen during the run, in the worlds of the sweep: peers die, stall, come late and restart
while they agree on the round from which on it is averaged."""

from __future__ import annotations

import dataclasses
import zlib
from collections import Counter
from typing import Any

import pytest
from tiers import one_in
from torch import nn

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.task.task import Task
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps import verdict
from samovar.sims.sweeps.sweep import judge_seed


def thawing(size: int) -> Task:
    """The toy task, whose bias the peers unfreeze after different rounds."""
    toy = toy_task(size)

    def model() -> nn.Module:
        made = toy.model()
        made.bias.requires_grad_(False)  # type: ignore[operator, union-attr]
        return made

    def on_round(record: ExchangeRecord, run: Any) -> None:
        if record.version >= 2 + zlib.crc32(run.name.split(".")[0].encode()) % 3:
            run.model.bias.requires_grad_(True)

    return dataclasses.replace(toy, model=model, on_round=on_round)


@pytest.mark.parametrize("seeds", one_in(20, [range(first, first + 4) for first in range(0, 80, 4)]), ids=str)
def test_every_promise_holds_while_peers_unfreeze_a_parameter(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdict, "toy_task", thawing)
    reached = Counter[str]()
    for seed in seeds:
        judged = judge_seed(seed, "allreduce")
        assert judged.broken is None, f"seed {seed}: {judged.broken}"
        reached += judged.reached
    assert reached["a parameter was unfrozen during the run"]
