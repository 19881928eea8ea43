"""A member that does not lead, and lies, moves no two others apart: not by telling each of the decree that it has not
adopted, and not by being the only one that a member does not take for gone."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field, replace

from company import Company, Walker, assert_one_truth
from conformance import over
from simulated import simulate
from test_echoes import another

from samovar.protocols.members.echoes import RANKS
from samovar.protocols.members.messages import MEMBERS, Adopt, Install
from samovar.protocols.members.view import Decree, View

HIGH = 1 << 12
"""A ballot of so many tries is above those of the others, and not absurd."""


@dataclass
class Crowd:
    """`n` members that make rounds, of which the last lies when it is told to, and does not lead."""

    n: int
    views: defaultdict[int, set[View]] = field(default_factory=lambda: defaultdict(set))
    """The views of each generation in which any honest member was."""

    async def gathered(self) -> Company:
        company = self.company = Company(self.n, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        for walker in self.honest:
            walker.membership.on_view.append(lambda view: self.views[view.generation].add(view))
        self.view, self.say = company[0].membership.view, over(company[-1].endpoint, MEMBERS)
        self.ballot = HIGH * RANKS + self.view.ids.index(company[-1].id)
        return company

    @property
    def honest(self) -> list[Walker]:
        return self.company.walkers[:-1]

    def decree(self, number: int) -> Decree:
        """One of several next views of the same members."""
        following = replace(self.view, generation=self.view.generation + 1)
        return another(Decree(following, self.company[0].membership.base, (self.company[-1].id,), ()), number)

    def proposes(self, decree: Decree, *to: str) -> None:
        for peer in to:
            self.say.post(peer, Adopt(self.view.generation, self.ballot, decree))

    async def stays_together(self) -> None:
        generation = self.view.generation
        await self.company.until(lambda: all(one.membership.view.generation > generation for one in self.honest))
        reached = max(walker.sgd.state.round for walker in self.honest) + 4
        await self.company.until(lambda: all(walker.sgd.state.round >= reached for walker in self.honest))
        assert {generation: len(views) for generation, views in self.views.items() if len(views) > 1} == {}
        assert_one_truth(self.company)


def adopts_at_once(*walkers: Walker) -> None:
    """Else the coordinator leads in place of a liar (`test_repeated_lies`)."""
    for walker in walkers:
        walker.membership._change.acceptor.postponed.must_yield = lambda *_, **__: False  # type: ignore[method-assign]


def test_a_member_that_tells_each_half_of_the_decree_of_the_other_moves_no_two_apart() -> None:
    """Half of the honest members have adopted each of its two decrees, and echoed it; neither has enough adopters. The
    member that is told counts among those that have to agree, although it has adopted the other decree itself."""

    async def play() -> None:
        crowd = Crowd(5)
        company = await crowd.gathered()
        adopts_at_once(*crowd.honest)
        ids = [walker.id for walker in crowd.honest]
        halves, decrees = (ids[: len(ids) // 2], ids[len(ids) // 2 :]), (crowd.decree(0), crowd.decree(1))
        for half, decree in zip(halves, decrees, strict=True):
            crowd.proposes(decree, *half)
        heard = [walker.membership._change.acceptor.echoes for walker in crowd.honest]
        echoes = len(ids) - 1
        await company.until(lambda: all(sum(len(one.tellers(decree)) for decree in decrees) == echoes for one in heard))
        for half, decree in zip(halves, reversed(decrees), strict=True):
            for peer in half:
                crowd.say.post(peer, Install(decree))
        await asyncio.sleep(0.2)
        assert len(crowd.views[crowd.view.generation + 1]) < 2
        await crowd.stays_together()
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_liar_moves_no_member_away_that_takes_all_others_for_gone() -> None:
    """It still counts on them, until they are lost or say themselves that they join anew."""

    async def play() -> None:
        crowd = Crowd(4)
        company = await crowd.gathered()
        victim, *others = crowd.honest[1:] + crowd.honest[:1]
        for other in others:
            victim.membership.suspect(other.id, "it was busy")
        crowd.proposes(crowd.decree(0), victim.id)
        crowd.say.post(victim.id, Install(crowd.decree(0)))
        await asyncio.sleep(0.3)
        assert victim.membership._change.acceptor.has_adopted(crowd.decree(0))
        assert victim.membership.view == crowd.view
        await crowd.stays_together()
        await company.over()

    simulate(play(), within_s=2_000.0)
