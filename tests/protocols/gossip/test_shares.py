"""Shares: of each it is known in the end whether it was taken, and what was not taken counts for its sender again."""

import asyncio
import importlib
import sys

import pytest
import torch
from conformance import eventually
from live import ROOT
from simulated import LINK, endpoint_in, no_complaints, simulate  # noqa: F401

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.gossip.exchange import NeighbourExchange
from samovar.protocols.gossip.messages import GOSSIP, Published
from samovar.protocols.gossip.shares import Shares, split
from samovar.sims.world.network import Network


@pytest.mark.parametrize("takers", [0, 1, 3, 7])
def test_shares_of_whole_numbers_sum_up_to_the_split_vector(takers: int) -> None:
    vector = torch.tensor([-(2**40) - 3, -1, 0, 1, 5, 2**50 + 7])
    share, rest = split(vector, takers)
    assert (rest + takers * share).equal(vector)
    assert ((rest - share).abs() <= takers).all(), "all parts are alike but for what cannot be divided"


def test_a_share_that_its_taker_tells_of_does_not_come_back() -> None:
    shares, share = Shares(), torch.ones(3)
    shares.given("a", ask=5, round=1, share=share)
    shares.took("a", 5)
    shares.told("a", 0)
    assert shares.back() == []


@pytest.mark.parametrize(("took", "back"), [(5, 0), (4, 1), (0, 1)])
def test_the_next_question_of_a_taker_tells_whether_it_took_the_last_share(took: int, back: int) -> None:
    shares = Shares()
    shares.given("a", ask=5, round=1, share=torch.ones(3))
    shares.told("a", took)
    assert len(shares.back()) == back
    assert shares.back() == [], "each comes back once"


def test_a_share_of_a_state_that_is_given_up_does_not_come_back() -> None:
    shares = Shares()
    shares.given("a", ask=5, round=1, share=torch.ones(3))
    shares.come_back(1, torch.ones(3), ["b"])
    shares.reset()
    shares.told("a", 0)
    assert shares.back() == []


def test_of_takers_out_of_reach_the_shares_of_four_rounds_are_kept_until_they_tell() -> None:
    """An earlier one counts as taken: a peer that trains on beside dead neighbours would fill its memory."""
    shares, share = Shares(), torch.ones(3)
    for number, taker in enumerate("abcde"):
        shares.given(taker, ask=7, round=number, share=share)
        shares.cut_off(taker)
    shares.given("f", ask=7, round=0, share=share)
    shares.cut_off("c")
    shares.cut_off("g")
    for taker in "abcdefg":
        shares.told(taker, 0)
    assert len(shares.back()) == len("bcdef")


def test_a_taken_share_stays_taken_though_its_giver_was_held_for_dead() -> None:
    """The taker cannot confirm the share, because the link breaks; its next question comes after the giver is back."""

    async def main() -> None:
        network, shares, exchanges = Network(parse_link(LINK), 1), Shares(), dict[str, NeighbourExchange]()
        ends = {name: endpoint_in(network, name) for name in ("giver", "taker")}
        for name, end in ends.items():
            await end.open()
            first, own = Published(0, 0, torch.zeros(3)), shares if name == "giver" else Shares()
            exchanges[name] = NeighbourExchange(Channel(end, GOSSIP), first, None, own)

        def meet() -> None:
            for one, other in (("giver", "taker"), ("taker", "giver")):
                ends[one].dial(other, ends[other].address)

        meet()
        question = asyncio.create_task(exchanges["taker"].take("giver", 1))
        await exchanges["giver"].publish(Published(1, 1, torch.ones(3)), ["taker"])
        await eventually(lambda: "taker" in shares._open)
        network.cut("taker", "giver")
        await question
        exchanges["taker"].gone("giver")
        ends["taker"].forget("giver")
        network.join("taker", "giver")
        meet()
        question = asyncio.create_task(exchanges["taker"].take("giver", 2))
        await eventually(lambda: "taker" in exchanges["giver"].giving._wanted)
        await exchanges["giver"].publish(Published(2, 2, torch.ones(3)), ["taker"])
        await question
        assert shares.back() == []
        for end in ends.values():
            end.abort()

    simulate(main())


def test_the_shares_of_all_neighbours_whose_links_have_ended_stay_open_until_they_tell() -> None:
    """However many they are, and however old: each may ask again over a new link."""

    async def main() -> None:
        end, shares = endpoint_in(Network(parse_link(LINK), 1), "giver"), Shares()
        giving = NeighbourExchange(Channel(end, GOSSIP), Published(0, 0, torch.zeros(3)), None, shares).giving
        takers = [f"taker-{number}" for number in range(8)]
        for number, taker in enumerate(takers):
            shares.given(taker, ask=7, round=number, share=torch.ones(3))
            giving.forget(taker)
        for taker in takers:
            shares.told(taker, 0)
        assert len(shares.back()) == len(takers)
        end.abort()

    simulate(main())


def test_over_links_that_break_no_share_is_lost_and_none_counts_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the exchange itself, in simulation: `python benchmarks/papers/gossip.py --only b` has more peers."""
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    found = importlib.import_module("_cut_links").conserved(6, 40, broken=0.3, seed=2)
    assert found.broken == round(0.3 * found.transfers) > 100, "each of those that were drawn was under way"
    assert found.back > 0
    assert found.exact
    assert found.error < 1e-6
    sys.modules.pop("_cut_links")
