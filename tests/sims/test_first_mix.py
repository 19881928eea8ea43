"""What it costs a newcomer to come into step where neighbours send differences: one model, and none is sent twice."""

import pytest
import torch
from live import ROOT
from test_edge import HUB, THIN

from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.gossip.estimates import Estimated, Estimates
from samovar.protocols.gossip.messages import Published
from samovar.sims.checkers.gossip import an_estimate_has_the_same_bits_on_both_sides
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.sweeps.draw import draw
from samovar.sims.world.event_log import Entry
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World

MEGABYTE, MODEL_BYTES = ROOT / "tests/support/tasks/megabyte.py", 4 * (512 * 512 + 512)


class Joins:
    """A peer that trains alone, and two edge peers that come at these times, in seconds."""

    def __init__(self, *at_s: float, within_s: float) -> None:
        edge = Group(peers=2, link=THIN, dialable=False, budget_Bps=100_000, step_s=0.5)
        hub = Group(peers=1, link=HUB.link, step_s=0.5)
        own = {"algorithm": "choco", "codec": "top_k:0.01", "topology": "complete", "period": "2"}
        settings = Settings(peers=1, steps=10**6, protocol="gossip", device="cpu", patience_s=10.0, **own)
        scenario = Scenario(settings=settings, groups=(hub, edge), arrivals=tuple(enumerate(at_s, 1)))
        self.records: list[Record] = []
        self.world = World(load_task(MEGABYTE), scenario, self.records.append)
        with pytest.raises(Hung):  # its time is over
            run_virtual(self.world.run(within_s=within_s), seed=0)

    def exchanges(self, peer: str) -> list[ExchangeRecord]:
        return [one for one in self.records if isinstance(one, ExchangeRecord) and one.peer == peer]


@pytest.mark.parametrize("at_s", [(2.0, 2.5), (2.0, 40.0)])
def test_an_edge_peer_fetches_one_model_and_sends_none_until_it_is_in_step(at_s: tuple[float, float]) -> None:
    """Before differences could lead on from another peer's vector it was 2.4 to 3.3 models down and 1.8 to 4.4 up."""
    joins = Joins(*at_s, within_s=at_s[1] + 40)
    assert [one for one in joins.records if isinstance(one, EventRecord) and one.event in ("lost", "error")] == []
    for peer in "12":
        first, *later = joins.exchanges(peer)
        assert first.bytes_received <= 1.2 * MODEL_BYTES
        assert max(one.bytes_sent for one in (first, *later)) <= 0.2 * MODEL_BYTES
        assert max(one.bytes_received for one in later) <= 0.2 * MODEL_BYTES, "not for another newcomer either"
        assert later[-1].members == 3
    assert list(an_estimate_has_the_same_bits_on_both_sides(joins.world.scenario, joins.world.log.entries)) == []


def test_a_difference_that_is_taken_for_one_from_whatever_vector_is_here_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def found(self: Estimates, giver: str, before: int | None, base: bytes) -> torch.Tensor:
        return self._own.vector

    monkeypatch.setattr(Estimates, "found", found)
    joins = Joins(2.0, 2.5, within_s=40)
    told = [*an_estimate_has_the_same_bits_on_both_sides(joins.world.scenario, joins.world.log.entries)]
    assert any("has another estimate of peer-" in one for one in told)


def test_an_estimate_of_other_bits_is_found() -> None:
    ones = torch.ones(2)
    log = [Entry(0.0, "1.0", Published(4, 8, ones)), Entry(1.0, "0.0", Estimated("peer-1", 4, ones.clone()))]
    assert list(an_estimate_has_the_same_bits_on_both_sides(draw(0, "gossip"), log)) == []
    log.append(Entry(2.0, "2.0", Estimated("peer-1", 4, ones.nextafter(2 * ones))))
    found = list(an_estimate_has_the_same_bits_on_both_sides(draw(0, "gossip"), log))
    assert found == ["2.0 has another estimate of peer-1 in round 4 than peer-1 itself"]
