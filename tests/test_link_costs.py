"""What links cost is measured by those who use them, and all go by the same figures."""

import pytest
from company import Company
from simulated import endpoint_in, no_complaints, now, simulate  # noqa: F401

from samovar.aggregation.agreed import UNKNOWN
from samovar.peers.links import parse_link
from samovar.protocols.link_costs import measured
from samovar.sims.network import Network

from .conformance import Parcel


@pytest.mark.parametrize(("link", "alpha_s", "Bps"), [("10mbit,40ms", 0.04, 1.25e6), ("100mbit,5ms", 0.005, 1.25e7)])
def test_all_agree_on_what_their_links_cost(link: str, alpha_s: float, Bps: float) -> None:
    company = simulate(Company(4, rounds=12, size=400_000, link=link).run())
    company.agree()
    agreed = {walker.sgd.state.links for walker in company.walkers}
    assert len(agreed) == 1
    (costs,) = agreed
    assert costs.alpha_s == pytest.approx(alpha_s, rel=0.25)
    assert 1 / costs.s_per_byte == pytest.approx(Bps, rel=0.5)


def test_who_catches_up_learns_what_the_others_agreed_on() -> None:
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
        assert measured(company[0].endpoint, ("p0",)) == UNKNOWN

    simulate(main())


@pytest.mark.parametrize(("link", "Bps"), [("10mbit,5ms", 1.25e6), ("10mbit,300ms", 1.25e6), ("1mbit,600ms", 125e3)])
def test_a_long_way_is_filled_as_a_short_one_is(link: str, Bps: float) -> None:
    """Its round trip is longer than what else may wait on a way: half a second, by the patience here."""

    async def main() -> float:
        network, seconds = Network(parse_link(link), 1), 120.0
        a, b = endpoint_in(network, "a"), endpoint_in(network, "b")
        for one, other in ((a, "b"), (b, "a")):
            await one.open()
            one.admit(other)
        a.dial("b", "sim://b")
        b.on(Parcel, lambda envelope: envelope.done())
        while now() < seconds:
            await a.send("b", Parcel(0), bytes(a.chunk_bytes("b")))
        for one in (a, b):
            one.abort()
        return network.carried["a", "b"] / seconds

    assert simulate(main()) > 0.75 * Bps
