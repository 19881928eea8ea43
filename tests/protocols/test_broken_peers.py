"""Rounds with peers that are broken: what is not finite, not due or not the others' result harms its owner only."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from company import Company, assert_one_truth, moved, value
from simulated import no_complaints, simulate  # noqa: F401

from samovar.protocols.collectives import allreduce as allreduce_module
from samovar.protocols.collectives import reducer as reducer_module
from samovar.protocols.local_sgd import local_sgd as local_sgd_module
from samovar.protocols.local_sgd.local_sgd import Contribution
from samovar.protocols.local_sgd.state import State
from samovar.protocols.transfer.chunks import Chunk
from samovar.protocols.transfer.snapshot import Snapshot


@pytest.mark.parametrize("field", ["vector", "loss", "learning_rate", "elapsed_s", "weight"])
@pytest.mark.parametrize("poison", [float("nan"), float("inf")])
def test_a_contribution_that_is_not_finite_is_an_error_of_its_owner(field: str, poison: float) -> None:
    async def main() -> Company:
        company = Company(4)
        honest = company[1].brings

        def brings() -> Contribution:
            brought = honest()
            values = {name: getattr(brought, name) for name in Contribution._fields}
            values[field] = brought.vector.index_fill(0, torch.tensor([3]), poison) if field == "vector" else poison
            return Contribution(**values)

        company[1].brings = brings  # type: ignore[method-assign]
        return await company.run()

    company = simulate(main())
    assert isinstance(company[1].error, ValueError)
    assert company[1].sgd.state.round == 0
    company.agree([company[0], company[2], company[3]])
    assert torch.isfinite(company[0].sgd.state.vector).all()


def test_a_mean_that_is_not_finite_is_applied_by_no_peer() -> None:
    """And ends all when each by itself brings what can be, and all are as large."""

    async def main() -> Company:
        company = Company(3)
        for walker in company.walkers:
            walker.stride = torch.finfo(torch.float32).max / 4
        return await company.run()

    company = simulate(main())
    assert all(isinstance(walker.error, ValueError) for walker in company.walkers)
    assert {value(walker) for walker in company.walkers} == {0.0}
    assert {walker.sgd.state.round for walker in company.walkers} == {0}


def test_a_sender_of_wrong_chunks_is_suspected_and_the_round_goes_on(monkeypatch) -> None:
    """Though it comes back at once, over and over: between two of its returns a round has its chance."""
    monkeypatch.setattr(allreduce_module, "Allreduce", Lying)
    company = simulate(Company(4, rounds=4).run())
    honest = [company[0], company[1], company[3]]
    company.agree(honest)
    assert value(company[0]) == pytest.approx(4 * moved(honest), rel=1e-5)
    removals = [removal for removal in company[3].membership.removals if removal.peer == "p2"]
    assert len(removals) > 1, "it came back to lie again"
    assert any("it sent" in removal.why and "were due" in removal.why for removal in removals)


class Lying(allreduce_module.Allreduce):
    """p2 sends what is not due."""

    def _send(self, way: Any) -> None:
        if self._channel.endpoint.id == "p2":
            self._channel.offer(way.peer, Chunk(*self._stage_id, way.runs[0].step, 10**6, 1), bytes(4))
        else:
            super()._send(way)


def disagreeing(monkeypatch, *, different: dict[str, float]) -> None:
    """Let the machines of these peers add up wrongly, once."""
    honest = reducer_module.allreduce

    async def allreduce(channel, *args, **kwargs) -> torch.Tensor:
        total = await honest(channel, *args, **kwargs)
        if (peer := channel.endpoint.id) in different:
            total = total.clone()  # it may still be on its way to others
            total[0] += different.pop(peer)
        return total

    monkeypatch.setattr(reducer_module, "allreduce", allreduce)


@pytest.mark.parametrize(
    "different",
    [{"p1": 1.0}, {"p0": 1.0}, {"p0": 1.0, "p2": 1.0}, {"p0": 1.0, "p1": 2.0, "p2": 3.0}, {"p3": 1.0, "p2": 2.0}],
)
@pytest.mark.parametrize("n", [2, 3, 4])
def test_of_different_results_one_becomes_the_result_of_all(n: int, different: dict[str, float], monkeypatch) -> None:
    disagreeing(monkeypatch, different=dict(different))
    company = simulate(Company(n).run())
    company.agree()
    assert_one_truth(company)
    wrong = [peer for peer in different if int(peer[1:]) < n]
    if len(wrong) < n / 2:
        assert value(company[0]) == pytest.approx(2 * moved(company.walkers), rel=1e-5), "the one that most had"
        assert all(company[int(peer[1:])].outcomes[0].caught_up for peer in wrong)


def test_a_peer_whose_result_differs_takes_only_the_state_that_most_have(monkeypatch) -> None:
    """p0, which it asks first, hands out another state than it has committed: its memory is broken."""
    disagreeing(monkeypatch, different={"p3": 1.0})

    async def main() -> Company:
        company, honest = Company(4), local_sgd_module.to_snapshot

        def to_snapshot(state: State, grown: bytes = b"") -> Snapshot:
            broken = state is company[0].sgd.state
            return honest(replace(state, vector=state.vector + 1) if broken else state, grown)

        monkeypatch.setattr(local_sgd_module, "to_snapshot", to_snapshot)
        return await company.run()

    company = simulate(main())
    assert company[3].outcomes[0].caught_up
    assert torch.equal(company[3].outcomes[0].state.vector, company[1].outcomes[0].state.vector)
    company.agree()
    assert value(company[0]) == pytest.approx(2 * moved(company.walkers), rel=1e-5)


def test_a_finished_peer_stays_for_a_peer_that_lags(monkeypatch) -> None:
    """p2 has to fetch the last round's result, and whom it asks first dies: p1, though at its end, is still there."""
    disagreeing(monkeypatch, different={"p2": 1.0})

    async def main() -> Company:
        company = Company(3, rounds=1)
        company.start()
        await company.until(lambda: company[0].sgd.period == company[1].sgd.period == 0)
        assert company[2].sgd.state.round == 0
        company[0].crash()
        await company.ended()
        return company

    company = simulate(main())
    company.agree([company[1], company[2]])
    assert company[2].outcomes[0].caught_up
