"""Edge peers in simulations: budgets as the network counts them, sleep when a day's bytes are used up, and pauses."""

import re
from typing import Any

import pytest
from test_budget import Counted, most_in
from test_simulated_runs import TASKS
from tiers import soaked

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import load_task
from samovar.protocols.budget import DAY_S
from samovar.sims.checkers.swim import SWIM
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

UNION = TASKS / "union.py"
THIN = parse_link("1mbit,20ms")
HUB = Group(peers=1, link=parse_link("100mbit,5ms"))


class Run:
    """A run of one peer that can be dialled, and some that cannot and have a budget."""

    def __init__(self, *edges: Group, steps: int = 200, faults: tuple[Fault, ...] = (), **settings: Any) -> None:
        common = {"protocol": "gossip", "period": "4", "device": "cpu", **settings}
        groups = (HUB, *edges)
        peers = sum(group.peers for group in groups)
        scenario = Scenario(settings=Settings(peers=peers, steps=steps, **common), groups=groups, faults=faults)
        self.records: list[Record] = []
        self.world = World(load_task(UNION), scenario, self.records.append)
        self.counted = [Counted(self.world.network, f"peer-{index}") for index in range(peers)]

    def play(self, within_s: float = 600.0) -> "Run":
        run_virtual(self.world.run(within_s=within_s), seed=0)
        return self

    def events(self, *names: str) -> list[EventRecord]:
        return [record for record in self.records if isinstance(record, EventRecord) and record.event in names]

    def exchanges(self, peer: str) -> list[ExchangeRecord]:
        return [record for record in self.records if isinstance(record, ExchangeRecord) and record.peer == peer]


@pytest.mark.parametrize("protocol", ["gossip", "allreduce"])
def test_edge_peers_train_behind_a_relay_within_their_budget(protocol: str) -> None:
    own = {"topology": "complete"} if protocol == "gossip" else {"topology": None}
    edge = Group(peers=2, link=THIN, dialable=False, budget_Bps=12_500)
    settings = {"protocol": protocol} if protocol == "allreduce" else {"protocol": protocol, **own}
    run = Run(edge, **settings).play()
    assert run.events("lost", "error") == []
    assert [len(run.exchanges(str(index))) for index in range(3)] == [50] * 3
    for counted in run.counted[1:]:
        largest = max(size for _, size in (*counted.up, *counted.down))
        for passed in (counted.up, counted.down):
            assert most_in(1.0, passed) <= 12_500 + max(largest, 2 * 2600)


@pytest.mark.parametrize(
    ("protocol", "rounds", "own"),
    [("gossip", 366, {"membership": "swim"}), soaked("gossip", 366, {}), soaked("allreduce", 366, {})],
)
def test_a_peer_sleeps_when_its_days_bytes_are_used_up_and_comes_back(
    protocol: str, rounds: int, own: dict[str, str]
) -> None:
    edge = Group(peers=1, link=THIN, dialable=False, budget_a_day_bytes=1_000_000)
    steady = Group(peers=1, link=HUB.link, step_s=20.0)
    run = Run(edge, steady, steps=4 * rounds, protocol=protocol, patience_s=300.0, **own).play(within_s=2 * DAY_S)
    first, *_ = asleep = run.events("asleep")
    assert {event.peer for event in asleep} == {"1"}
    said = re.fullmatch(r"only (\d+) kB are there for now, of 1.00 MB a day; it leaves, and is back in .*", first.why)
    assert said is not None
    assert 1 <= int(said[1]) <= 125, "of the first half day's bytes; it has not used those that come in over the day"
    woke, *_ = run.events("awake")
    assert 5 * 3600 < woke.time_s - first.time_s < 8 * 3600, "from next to nothing to a quarter of a day's bytes"
    passed = sorted([*run.counted[1].up, *run.counted[1].down])
    amid = [when for when, _ in passed if first.time_s + 60 < when < woke.time_s - 1]
    assert amid == [], "not a byte while it sleeps"
    assert most_in(DAY_S, passed) <= 1_000_000
    assert run.events("lost", "error", "refused") == []
    gone = [(event.peer, event.about) for event in run.events("left", "joined")]
    assert gone.count(("0", "1")) == gone.count(("2", "1")) == len(gone) / 2 > 0
    mine = [one for one in run.exchanges("1") if one.time_s > woke.time_s]
    assert mine[0].caught_up
    assert mine[1].members == 3
    assert [len(run.exchanges(peer)) for peer in "02"] == [rounds, rounds], "nobody waits for one that sleeps"
    assert [why for check in SWIM for why in check(run.world.scenario, run.world.log.entries)] == []


def test_a_budget_of_a_day_is_refused_where_a_peer_has_a_few_links_only() -> None:
    with pytest.raises(SettingsError, match="its few links are gone"):
        Settings(peers=40, protocol="gossip", membership="swim:3", budget_per_day="5MB")


def test_a_peer_paused_for_an_hour_comes_back_and_trains_on() -> None:
    edge = Group(peers=2, link=THIN, dialable=False, budget_Bps=25_000)
    pause = Fault(kind=Kind.PAUSE, who=(1,), at_s=100.0, for_s=3600.0)
    steady = Group(peers=1, link=HUB.link, step_s=20.0)
    run = Run(edge, steady, steps=240, faults=(pause,), patience_s=30.0).play(within_s=DAY_S)
    assert {(event.event, event.about) for event in run.events("lost", "joined") if event.peer != "1"} == {
        ("lost", "1"),
        ("joined", "1"),
    }
    after = [one for one in run.exchanges("1") if one.time_s > 3690.0]
    assert any(one.caught_up for one in after[:3]), "the exchange in which it stood still may end first"
    assert max(one.members for one in after) == 3, "itself and both its neighbours"
    assert after[-1].step == 240
    for counted in run.counted[1:3]:
        assert most_in(1.0, counted.up) <= 25_000 + 9_000
