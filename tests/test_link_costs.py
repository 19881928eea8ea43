"""What links cost is measured by those who use them, and all go by the same figures."""

import pytest
from company import Company
from simulated import no_complaints, simulate  # noqa: F401

from samovar.aggregation.agreed import UNKNOWN
from samovar.protocols.link_costs import measured


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
