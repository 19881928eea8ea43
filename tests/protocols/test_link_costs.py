"""What links cost is measured by those who use them, and all go by the same figures."""

import pytest
from company import Company
from conformance import Parcel, link_of, over
from simulated import PATIENCE_S, endpoint_in, no_complaints, now, simulate  # noqa: F401
from tiers import soaked

from samovar.aggregation.schedules.choice import UNKNOWN
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.link_quality.costs import measured
from samovar.sims.world.network import Network


@pytest.mark.parametrize(("link", "alpha_s", "Bps"), [("10mbit,40ms", 0.04, 1.25e6), ("100mbit,5ms", 0.005, 1.25e7)])
def test_all_peers_agree_on_the_costs_of_their_links(link: str, alpha_s: float, Bps: float) -> None:
    company = simulate(Company(4, rounds=12, size=400_000, link=link).run())
    company.agree()
    agreed = {walker.sgd.state.links for walker in company.walkers}
    assert len(agreed) == 1
    (costs,) = agreed
    assert costs.alpha_s == pytest.approx(alpha_s, rel=0.25)
    assert 1 / costs.s_per_byte == pytest.approx(Bps, rel=0.5)


def test_a_newcomer_learns_the_agreed_costs_of_links() -> None:
    async def main() -> Company:
        company = Company(4, rounds=8, size=50_000)
        company.start()
        await company.until(lambda: company[0].sgd.state.round >= 3)
        company.add(4, "p0")
        await company.ended()
        return company

    company = simulate(main())
    company.agree()
    assert len({walker.sgd.state.links for walker in company.walkers}) == 1
    assert company[4].outcomes


def test_nothing_is_known_before_anything_was_sent() -> None:
    async def main() -> None:
        company = Company(2)
        assert measured(company[0].sgd.channel, ("p0",)) == UNKNOWN

    simulate(main())


class Way:
    """One sends another all that the way takes, for so many seconds."""

    def __init__(self, link: str, seconds: float) -> None:
        self._network, self._seconds = Network(parse_link(link), 1), seconds
        self.rate_Bps, self.window_bytes = simulate(self._main(), within_s=seconds + 60.0)

    async def _main(self) -> tuple[float, int]:
        a, b = endpoint_in(self._network, "a"), endpoint_in(self._network, "b")
        for one, other in ((a, "b"), (b, "a")):
            await one.open()
            one.admit(other)
        a.dial("b", "sim://b")
        over(b).on(Parcel, lambda envelope: envelope.done())
        while now() < self._seconds:
            await over(a).send("b", Parcel(0), bytes(a.chunk_bytes("b")))
        window_bytes = link_of(a, b)._pace.window_bytes
        for one in (a, b):
            one.abort()
        return self._network.carried["a", "b"] / self._seconds, window_bytes


@pytest.mark.parametrize(
    ("link", "share"),
    [
        soaked("10mbit,5ms", 0.9),
        ("10mbit,300ms", 0.9),
        soaked("1mbit,600ms", 0.8),
        soaked("10mbit,800ms", 0.7),
        ("10mbit,700ms,200ms", 0.5),
    ],
)
def test_a_long_way_is_filled_as_a_short_one_is(link: str, share: float) -> None:
    """Its round trip is longer than what else may wait on a way: half a second, by the patience here."""
    assert Way(link, 120.0).rate_Bps > share * parse_link(link).bandwidth_Bps


@pytest.mark.parametrize(("link", "trip_s"), [("1mbit,5ms", 0.01), soaked("10mbit,300ms", 0.6)])
def test_the_window_on_a_busy_way_does_not_grow(link: str, trip_s: float) -> None:
    """Where every ping has waited behind data for longer than round trips are remembered."""
    assert Way(link, 400.0).window_bytes <= 1.25 * (PATIENCE_S / 8 + trip_s) * parse_link(link).bandwidth_Bps
