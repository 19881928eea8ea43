"""A parameter that is unfrozen during the run, in the worlds of the sweep: peers die, stall, come late and restart
while they agree on the round from which on it is averaged."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from tiers import soaked

from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge


@pytest.mark.parametrize("seeds", [range(2), *(soaked(range(first, first + 4)) for first in range(0, 80, 4))], ids=str)
def test_every_promise_holds_while_peers_unfreeze_a_parameter(seeds: range) -> None:
    reached = Counter[str]()
    for seed in seeds:
        judged = judge(replace(draw(seed, "allreduce"), thaws=True))
        assert judged.broken is None, f"seed {seed}: {judged.broken}"
        reached += judged.reached
    assert reached["a parameter was unfrozen during the run"]
