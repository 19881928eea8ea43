"""Learners that never learn anything keep no honest newcomer out."""

from __future__ import annotations

import asyncio

import pytest
from company import Company, Walker
from simulated import PATIENCE_S, no_complaints, now, simulate  # noqa: F401

from samovar.protocols.members import places, view
from samovar.protocols.members.view import Version

PLACES = 4


def with_places(company: Company, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for so many beside the three founders, and for few members more."""
    company.peers_max = 30
    member = company[0].membership.me
    monkeypatch.setattr(view, "VIEW_BYTES_MAX", (3 + count) * (member.nbytes + 1))


def silent(company: Company, index: int) -> Walker:
    """A newcomer that beats on, is let in, and never asks for the state."""
    walker = company.add(index, f"p{index % 3}")
    walker.sgd.gather = asyncio.Event().wait  # type: ignore[method-assign,assignment]
    return walker


@pytest.mark.parametrize("seed", range(2))
def test_silent_newcomers_in_any_number_keep_no_honest_one_out(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        company = Company(3, rounds=100_000, train_s=lambda index: 0.5, seed=seed)
        with_places(company, PLACES, monkeypatch)
        await company.gathered(2)
        crowd = [silent(company, index) for index in range(3, 10)]
        await company.until(lambda: len(company[0].membership.view.learners) == PLACES)
        began_s = now()
        honest = company.add(20, "p1")
        await company.until(lambda: honest.id in company[0].membership.view.ids)
        assert now() - began_s < 2 * 16 * PATIENCE_S
        assert len(company[0].membership.view.everybody) <= 3 + PLACES
        assert honest.error is None
        gave_way = {loss.peer for loss in company[0].membership.removals if loss.why == places.GAVE_WAY}
        assert gave_way & {walker.id for walker in crowd}
        assert {*company[0].membership.view.ids} == {"p0", "p1", "p2", honest.id}
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_no_learner_gives_way_while_there_is_room_nor_within_a_while() -> None:
    async def main() -> None:
        company = Company(3, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        crowd = {silent(company, index).id for index in range(3, 7)}
        await asyncio.sleep(40 * PATIENCE_S)
        assert {learner.id for learner in company[0].membership.view.learners} == crowd
        assert not company[0].membership.removals
        await company.over()

    simulate(main(), within_s=2_000.0)


def test_a_learner_that_told_of_a_state_gives_way_after_silent_learners(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too slow to become a member, but it learns."""

    async def main() -> None:
        company = Company(3, rounds=100_000, train_s=lambda index: 0.5)
        with_places(company, 2, monkeypatch)
        await company.gathered(2)
        slow = silent(company, 3)
        await company.until(lambda: slow.membership.learns)
        other = silent(company, 4)
        await company.until(lambda: other.membership.learns)
        await company.until(lambda: other.id in slow.membership.view.everybody)
        slow.membership.learning.tell(Version(0, 0), 1e6)
        await asyncio.sleep(20 * PATIENCE_S)
        honest = company.add(20, "p1")
        await company.until(lambda: honest.id in company[0].membership.view.ids)
        assert [loss.peer for loss in company[0].membership.removals][:1] == [other.id]
        await company.over()

    simulate(main(), within_s=2_000.0)
