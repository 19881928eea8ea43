"""Shares make the slowest link the least busy: the numbers of the paper, nothing better is found by search, and runs
whose links differ come to go by them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median

import pytest
from company import Company
from hypothesis import given
from hypothesis import strategies as st
from simulated import layout_of, no_complaints, simulate  # noqa: F401
from tiers import soaked

from samovar.aggregation.schedules.choice import UNKNOWN, LinkCosts
from samovar.aggregation.schedules.shares import bottleneck, by_bandwidth, coarse, loads, shares
from samovar.aggregation.vector import parts
from samovar.peers.conversations.local_sgd_schedules import schedule_for, uneven
from samovar.peers.conversations.local_sgd_settings import LocalSGDSettings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.collectives.reducer import on_one_machine
from samovar.protocols.link_quality.bandwidths import LEVEL_MAX, Bandwidths
from samovar.protocols.members.membership import Membership
from samovar.protocols.members.view import Attributes, Member, View
from samovar.sims.scenarios.scenario import Group
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge


def slowest(bandwidths: Sequence[float], has_data: Sequence[bool], owns: Sequence[bool] | None = None) -> float:
    return bottleneck(shares(bandwidths, has_data, owns), bandwidths, has_data)


@pytest.mark.parametrize(("n", "k"), [(8, 0), (8, 2), (8, 8), (4, 1)])
def test_equal_machines_and_their_helpers_share_as_the_paper_says(n: int, k: int) -> None:
    below = n * n + k * n - 2 * k
    bandwidths, has_data = [5.0] * (n + k), [True] * n + [False] * k
    share = shares(bandwidths, has_data)
    assert loads(share, has_data) == pytest.approx([2 * n * (n - 1) / below] * (n + k), abs=1e-12)
    assert share[:n] == pytest.approx([(n - k) / below] * n, abs=1e-12)
    assert share[n:] == pytest.approx([2 * (n - 1) / below] * k, abs=1e-12)
    assert bottleneck(share, bandwidths, has_data) == pytest.approx(2 * n * (n - 1) / below / 5.0, abs=1e-12)


def test_two_helpers_save_16_percent_of_an_allreduce_and_eight_43() -> None:
    assert slowest([1.0] * 8, [True] * 8) == pytest.approx(1.75)
    assert slowest([1.0] * 10, [True] * 8 + [False] * 2) == pytest.approx(1.4737, abs=5e-5)
    assert slowest([1.0] * 16, [True] * 8 + [False] * 8) == pytest.approx(1.0)


def test_more_helpers_than_machines_cannot_beat_the_time_for_ones_own_vector() -> None:
    assert slowest([1.0] * 12, [True] * 4 + [False] * 8) == pytest.approx(1.0)


def test_slow_peers_own_nothing_when_their_own_vector_is_all_that_they_can_send() -> None:
    bandwidths, has_data = [10.0] * 2 + [0.1] * 6, [True] * 8
    share = shares(bandwidths, has_data)
    assert share == pytest.approx([0.5] * 2 + [0.0] * 6, abs=1e-12)
    assert bottleneck(share, bandwidths, has_data) == pytest.approx(10.0)
    assert bottleneck([1 / 8] * 8, bandwidths, has_data) == pytest.approx(17.5)


def test_a_client_owns_nothing_and_sends_its_vector_only() -> None:
    bandwidths, has_data, owns = [1.0] * 5, [True] * 5, [True] * 4 + [False]
    share = shares(bandwidths, has_data, owns)
    assert share == pytest.approx([0.25] * 4 + [0.0])
    assert share[4] == 0.0
    assert loads(share, has_data) == pytest.approx([1.75] * 4 + [1.0])
    assert parts(1000, 5, share)[4] == (1000, 1000)


@pytest.mark.parametrize(
    ("bandwidths", "has_data", "owns", "wanted"),
    [
        ([3.0], [True], [True], [1.0]),
        ([3.0, 1.0], [True, False], [True, True], [1.0, 0.0]),  # alone with its data: nothing to send
        ([3.0, 1.0, 3.0], [True, False, False], [False, True, True], [0.0, 0.25, 0.75]),
        ([3.0, 1.0], [True, True], [True, True], [0.75, 0.25]),
        ([3.0, 1.0, 9.0], [True, True, False], [True, True, True], [0.75, 0.25, 0.0]),
        ([3.0, 1.0], [True, True], [False, True], [0.0, 1.0]),
        ([3.0, 1.0, 1.0], [True, True, False], [False, False, True], [0.0, 0.0, 1.0]),
    ],
)
def test_one_or_two_peers_with_data_have_their_known_shares(
    bandwidths: list[float], has_data: list[bool], owns: list[bool], wanted: list[float]
) -> None:
    assert shares(bandwidths, has_data, owns) == pytest.approx(wanted)


@st.composite
def companies(draw: st.DrawFn) -> tuple[list[float], list[bool], list[bool]]:
    size = draw(st.integers(1, 9))
    flags = st.lists(st.booleans(), min_size=size, max_size=size).filter(any)
    return draw(st.lists(st.floats(0.01, 100.0), min_size=size, max_size=size)), draw(flags), draw(flags)


def by_search(bandwidths: Sequence[float], has_data: Sequence[bool], owns: Sequence[bool]) -> float:
    """The least time in which owners can own everything, by bisection."""
    n = sum(has_data)
    low = max(data / bandwidth for bandwidth, data in zip(bandwidths, has_data, strict=True))

    def owned(time: float) -> float:
        total = 0.0
        for bandwidth, data, owner in zip(bandwidths, has_data, owns, strict=True):
            if owner and n <= 2 * data:
                return math.inf  # it owns everything at no cost
            total += max(0.0, time * bandwidth - data) / (n - 2 * data) if owner else 0.0
        return total

    high = low + 1e4 * n
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if owned(middle) >= 1 else (middle, high)
    return high


@given(companies())
def test_no_other_shares_are_faster(company: tuple[list[float], list[bool], list[bool]]) -> None:
    _, has_data, owns = company
    share = shares(*company)
    assert math.fsum(share) == pytest.approx(1.0)
    assert all(part == 0 if not owner else part >= 0 for part, owner in zip(share, owns, strict=True))
    if sum(has_data) > 1:  # one alone needs nobody, and no time
        assert slowest(*company) == pytest.approx(by_search(*company), rel=1e-9)
    parts(1000, len(share), share)


@pytest.mark.parametrize(
    ("measured", "counted", "share"),
    [
        ([4, 6, 10, 7], [10, 10, 10, 10], None),
        ([0, 0, 8, 5], [8, 8, 8, 8], None),
        ([10, 10, 0, 1], [10, 10, 10, 1], [1 / 3, 1 / 3, 1 / 3, 0.0]),
        ([10, 1], [10, 1], [10 / 11, 1 / 11]),
    ],
)
def test_measured_bandwidths_count_only_where_they_differ(
    measured: list[float], counted: list[float], share: list[float] | None
) -> None:
    assert coarse(measured) == tuple(counted)
    assert by_bandwidth(coarse(measured)) == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1.0, 0.0], [True, True]), "positive and finite"),
        (([1.0, math.nan], [True, True]), "positive and finite"),
        (([1.0, math.inf], [True, True]), "positive and finite"),
        (([1.0], [True, True]), "every peer needs all of its numbers"),
        (([1.0, 1.0], [True, True], [True]), "every peer needs all of its numbers"),
        (([], []), "somebody must"),
        (([1.0, 1.0], [False, False]), "somebody must have data"),
        (([1.0, 1.0], [True, True], [False, False]), "somebody must own"),
    ],
)
def test_bad_arguments_of_shares_are_refused(arguments: tuple[list, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shares(*arguments)


# ---- in runs


def unlike(count: int, slow: dict[int, str], *, rounds: int = 12, size: int = 1_000_000) -> Company:
    company = Company(
        count, rounds=rounds, size=size, link="100mbit,5ms", schedule="sharded", train_s=lambda index: 0.1, uneven=True
    )
    company.network.links.update({f"p{index}": parse_link(link) for index, link in slow.items()})
    return company


@pytest.mark.parametrize("sizes", [[1_500_000], soaked([1_500_000, 2_100_000, 3_000_000])])
def test_a_slow_peer_comes_to_own_nothing_and_rounds_take_as_much_less_as_the_closed_form_says(
    sizes: list[int],
) -> None:
    ratios = []
    for size in sizes:
        company = simulate(unlike(4, {3: "10mbit,5ms"}, rounds=9, size=size).run())
        company.agree()
        view = company[0].membership.view
        assert view.group("p0").shares == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
        by_view: dict[int, list[float]] = {}
        for outcome in company[0].outcomes:
            by_view.setdefault(outcome.generation, []).append(outcome.wait_s + outcome.transfer_s)
        equal_s, uneven_s = map(median, by_view.values())
        ratios.append(uneven_s / equal_s)
    bandwidths, has_data = [10.0, 10.0, 10.0, 1.0], [True] * 4
    alike = bottleneck([0.25] * 4, bandwidths, has_data)
    assert median(ratios) == pytest.approx(slowest(bandwidths, has_data) / alike, rel=0.15)


def test_where_links_are_alike_no_view_is_changed_for_their_sake() -> None:
    company = simulate(unlike(4, {}, size=300_000).run())
    company.agree()
    assert {outcome.generation for outcome in company[0].outcomes} == {company[0].outcomes[0].generation}
    assert company[0].membership.view.group("p0").shares is None


def test_when_a_peer_dies_the_others_go_on_with_shares_of_their_own() -> None:
    async def main() -> Company:
        company = unlike(5, {1: "10mbit,5ms"}, rounds=14, size=300_000)
        company.start()
        await company.until(lambda: company[0].membership.view.group("p0").shares is not None)
        assert company[0].membership.view.group("p0").shares == pytest.approx([0.25, 0.0, 0.25, 0.25, 0.25])
        company[3].crash()
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    assert company[0].membership.view.ids == ("p0", "p1", "p2", "p4")
    assert company[0].membership.view.group("p0").shares == pytest.approx([1 / 3, 0.0, 1 / 3, 1 / 3])


@pytest.mark.parametrize(
    ("levels", "counts"),
    [((60, 40, 40), True), ((), False), ((60, 40), False), ((60, 40, 40, 40), False), ((LEVEL_MAX + 1, 40, 40), False)],
)
def test_impossible_bandwidth_levels_are_not_counted(
    levels: tuple[int, ...], counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    company, learned = simulate(Company(3).run()), list[Mapping[str, int]]()
    monkeypatch.setattr(Membership, "assess", lambda self, bandwidths: learned.append(bandwidths))
    heard = Bandwidths(company[0].sgd.channel, company[0].membership, lambda: 10**6, lambda: UNKNOWN)
    for peer in ("p0", "p1", "p2"):
        heard.told(peer, levels)
    for _ in range(9):
        heard.consider()
    assert learned == [{"p0": 2**30, "p1": 2**20, "p2": 2**20}] * counts


@pytest.mark.parametrize("seed", [7, soaked(11), soaked(12)])
def test_every_promise_holds_where_parts_come_to_go_by_bandwidth(seed: int) -> None:
    """Whatever goes wrong in what that seed draws, with one peer whose connection is a tenth of the others'."""
    drawn = draw(seed, "allreduce")
    fast, slow = (Group(peers=1, link=parse_link(link), step_s=0.02) for link in ("20mbit,10ms", "2mbit,10ms"))
    settings = replace(
        drawn.settings,
        schedule="sharded",
        period="1",
        pace="equal",
        overlap=False,
        overlap_share=None,
        fragments=1,
        steps=12,
        site_period=None,
    )
    groups = (replace(fast, peers=drawn.peers - 1), slow)
    scenario = replace(drawn, groups=groups, trunks=(), toy_size=60_000, buggify=False, settings=settings)
    verdict = judge(scenario)
    assert verdict.broken is None
    assert verdict.reached["parts by bandwidth"]


def test_auto_takes_the_sharded_schedule_where_it_spares_the_slow() -> None:
    wished, nbytes, costs = LocalSGDSettings(), 16_000_000, LinkCosts(0.005, 1e-7)
    members = tuple(Member(f"p{index}", f"p{index}", "", Attributes(data_shard=index), 1) for index in range(8))
    assert schedule_for(wished, nbytes, View(1, members, True).group("p0"), costs).name == "ring"
    known = View(2, tuple(m.of_capacity(10**7 // (1 + 3 * (rank % 2))) for rank, m in enumerate(members)), True)
    assert known.group("p0").shares == pytest.approx([0.25, 0.0] * 4)
    assert schedule_for(wished, nbytes, known.group("p0"), costs).name == "sharded"


def test_peers_on_one_machine_send_fewest_messages_unless_the_vector_is_large() -> None:
    members = tuple(Member(f"p{index}", f"p{index}", "", Attributes(data_shard=index), 1, "here") for index in range(4))
    view, costs = View(1, members, True), LinkCosts(0.005, 1e-7)

    def chosen(codec: str, nbytes: int) -> str:
        return schedule_for(LocalSGDSettings(codec=codec), nbytes, view.group("p0"), costs).name

    assert chosen("int8", 20_000) == "naive", "each hop is encoded, so it is sent"
    assert chosen("int8", 200_000) == "sharded"
    assert {chosen(codec, 20_000) for codec in ("none", "top_k:0.1", "power_sgd:4")} == {"sharded"}, "in memory"
    refused = [on_one_machine(nbytes).name for nbytes in (1_000_000, 10_000_000)]
    assert refused == ["naive", "sharded"], "where there is no memory to share"


@pytest.mark.parametrize(
    ("codec", "by_it"),
    [("none", True), ("int8", True), ("top_k:0.1", False), ("power_sgd:4", False), ("random_k:0.1", False)],
)
def test_no_view_is_changed_for_bandwidth_where_a_codec_would_forget_its_residual(codec: str, by_it: bool) -> None:
    assert uneven(LocalSGDSettings(schedule="sharded", codec=codec), layout_of(1_000_000)) is by_it
