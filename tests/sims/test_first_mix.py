"""What it costs a newcomer to come into step where neighbours send differences: one model, and none is sent twice."""

import pytest
from test_edge import HUB, THIN
from tiers import soaked

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World
from live import ROOT

MEGABYTE = ROOT / "tests/support/tasks/megabyte.py"


def test_x():
    edge = Group(peers=2, link=THIN, dialable=False, budget_Bps=100_000)
    settings = Settings(
        peers=1,
        steps=10**6,
        protocol="gossip",
        algorithm="choco",
        codec="top_k:0.01",
        topology="complete",
        period="4",
        device="cpu",
        patience_s=10.0,
    )
    scenario = Scenario(settings=settings, groups=(HUB, edge), arrivals=((1, 2.0), (2, 2.5)))
    records: list[Record] = []
    world = World(load_task(MEGABYTE), scenario, records.append)
    with pytest.raises(Hung):
        run_virtual(world.run(within_s=300), seed=0)
    for peer in "012":
        made = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == peer]
        for one in made[:1] + [one for one in made if one.members == 3][:4]:
            print(
                peer,
                round(one.time_s, 1),
                one.version,
                one.members,
                one.caught_up,
                one.bytes_sent,
                one.bytes_received,
                one.model_bytes,
            )
    for e in records:
        if isinstance(e, EventRecord):
            print(e.time_s, e.peer, e.event, e.about, e.why)
    assert 0
