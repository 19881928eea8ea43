"""A member that leads a change of the view and tells the others different decrees moves no two of them apart."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest
from company import Company, Walker, assert_one_truth
from conformance import over
from simulated import PATIENCE_S, simulate
from test_decrees import roster_of

from samovar.protocols.channel import Envelope
from samovar.protocols.members.echoes import RANKS, Echo, Echoes, enough_of, mark_of, partners
from samovar.protocols.members.messages import MEMBERS, Adopt, Adopted, Install, Leave
from samovar.protocols.members.roster import TRY_FOR
from samovar.protocols.members.view import NOBODY, Decree, Version, View

Word = Adopt | Install


def another(decree: Decree, number: int) -> Decree:
    """A decree as good as this one, and not the same."""
    members = tuple(member.of_capacity(1000 + number) for member in decree.view.members)
    return replace(decree, view=replace(decree.view, members=members))


@dataclass
class Liar:
    """p0 of a company of `n`, which leads the changes. `tells`: which decree it tells each peer; None: nothing."""

    n: int
    tells: Callable[[str, Word], Decree | None] = lambda to, word: word.decree
    views: defaultdict[int, set[View]] = field(default_factory=lambda: defaultdict(set))
    """The views of each generation in which any honest peer was."""

    async def gathered(self) -> Company:
        company = self.company = Company(self.n, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        channel = company[0].membership._channel
        say = channel.post

        def lie(to: str, message: object) -> None:
            decree = self.tells(to, message) if isinstance(message, Adopt | Install) else None
            if not isinstance(message, Adopt | Install):
                say(to, message)
            elif decree is not None:
                say(to, replace(message, decree=decree))

        channel.post = lie  # type: ignore[method-assign]
        for walker in self.honest:
            walker.membership.on_view.append(lambda view: self.views[view.generation].add(view))
        return company

    @property
    def honest(self) -> list[Walker]:
        return self.company.walkers[1:]

    async def moves_one(self) -> int:
        """A change that brings p1 to the next view. Returns the generation in which it began."""
        generation = self.company[1].membership.view.generation
        self.company[0].membership.renew()
        await self.company.until(lambda: self.company[1].membership.view.generation > generation)
        return generation

    def together(self) -> None:
        assert {generation: len(views) for generation, views in self.views.items() if len(views) > 1} == {}
        assert_one_truth(self.company)

    async def they_go_on(self) -> None:
        reached = max(walker.sgd.state.round for walker in self.honest) + 4
        await self.company.until(lambda: all(walker.sgd.state.round >= reached for walker in self.honest))


@pytest.mark.parametrize(
    ("sides", "removed"),
    [((0, 0, 1), False), ((0, 0, 1, 1), True), ((0, 1, 2, 3), True), ((0, 0, 0, 0, 1, 1), False), ((0, 1) * 4, True)],
)
def test_a_leader_that_tells_each_member_another_decree_moves_no_two_of_them_apart(
    sides: tuple[int, ...], removed: bool
) -> None:
    """Where none of its decrees has enough adopters, the others lead the change without it."""
    side = {f"p{1 + index}": which for index, which in enumerate(sides)}

    async def play() -> None:
        liar = Liar(1 + len(sides), lambda to, word: another(word.decree, side[to]))
        company = await liar.gathered()
        generation = company[1].membership.view.generation
        company[0].membership.renew()
        await company.until(lambda: all(one.membership.view.generation > generation for one in liar.honest))
        await liar.they_go_on()
        liar.together()
        whys = [loss.why for walker in liar.honest for loss in walker.membership.removals if loss.peer == "p0"]
        assert bool(whys) is removed
        assert all("of another view than this peer under one ballot" in why for why in whys)
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_leader_that_tells_a_second_decree_when_the_first_may_hold_is_not_followed() -> None:
    """One member has gone on by the first, and the others do not know it yet."""

    async def play() -> None:
        second = False
        liar = Liar(4, lambda to, word: another(word.decree, second) if isinstance(word, Adopt) or to == "p1" else None)
        company = await liar.gathered()
        for walker in company.walkers[2:]:  # the leader has all the time that it needs
            walker.endpoint.reception._handlers[MEMBERS, Echo] = lambda envelope: None
        generation = await liar.moves_one()
        first, second, say = company[1].membership._change.acceptor.latest, True, over(company[0].endpoint, MEMBERS)
        assert first is not None
        ballot = company[2].membership._change.promised
        for to in ("p2", "p3"):
            say.post(to, Adopt(generation, ballot + (1 << 16), another(first, 7)))
        await asyncio.sleep(0.5)
        for to in ("p2", "p3"):
            say.post(to, Install(another(first, 7)))
        await company.until(lambda: all(one.membership.view.generation > generation for one in liar.honest))
        await liar.they_go_on()
        liar.together()
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_leader_and_another_that_vouches_for_its_second_decree_are_not_followed() -> None:
    """Two of seven lie: one member has gone on by the first decree, and p6 says that it has the second from a third."""

    async def play() -> None:
        liar = Liar(7, lambda to, word: word.decree if isinstance(word, Adopt) or to == "p1" else None)
        company = await liar.gathered()
        say, vouch = over(company[0].endpoint, MEMBERS), over(company[6].endpoint, MEMBERS)
        for walker in company.walkers[2:]:  # nobody asks whether the first holds
            walker.membership._change.hearsay._ask = lambda mark: None  # type: ignore[method-assign]
        generation = await liar.moves_one()
        first, ballot = company[1].membership._change.acceptor.latest, company[2].membership._change.promised
        assert first is not None
        second, victims = another(first, 7), ("p2", "p3", "p4", "p5")
        for to in victims:
            vouch.post(to, Echo(generation, ballot + RANKS + 3 - ballot % RANKS, mark_of(second)))
        await asyncio.sleep(0.2)
        for to in victims:
            say.post(to, Adopt(generation, ballot + 2 * RANKS, second))
        await asyncio.sleep(0.5)
        for to in victims:
            say.post(to, Install(second))
        await asyncio.sleep(0.5)
        assert all(walker.membership.view.generation == generation for walker in company.walkers[2:6])
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_leader_that_leaves_before_another_liar_proposes_moves_no_two_apart() -> None:
    """Two of seven lie. One member is in the view of the first decree; the others have heard that all adopted it."""

    async def play() -> None:
        liar = Liar(7, lambda to, word: word.decree if isinstance(word, Adopt) or to == "p1" else None)
        company = await liar.gathered()
        leader, rival = company[0].membership._channel, over(company[6].endpoint, MEMBERS)
        generation = await liar.moves_one()
        first, ballot = company[1].membership._change.acceptor.latest, company[2].membership._change.promised
        assert first is not None
        second, ballot = another(first, 7), (ballot // RANKS + 1) * RANKS + 6
        victims = ("p2", "p3", "p4", "p5")
        for to in victims:
            leader.post(to, Leave("it has other plans"))
        await asyncio.sleep(0.02)
        for to in victims:
            rival.post(to, Adopt(generation, ballot, second))
            rival.post(to, Echo(generation, ballot, mark_of(second)))
            rival.post(to, Install(second))
        await company.until(lambda: all(one.membership.view.generation > generation for one in liar.honest[:-1]))
        views = {one.membership.view.members[0].attributes.capacity for one in liar.honest[:-1]}
        assert views == {first.view.members[0].attributes.capacity}
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_a_leader_that_waits_before_it_tells_a_second_decree_moves_no_two_apart() -> None:
    """Two of seven lie. The leader told three of the first; one of these is in its view, by the word of the other liar.
    After the time for which a member waits, the leader tells all others of the second."""

    async def play() -> None:
        first: list[Adopt] = []

        def tells(to: str, word: Word) -> Decree | None:
            if isinstance(word, Adopt) and not first:
                first.append(word)
            told = isinstance(word, Adopt) and word.ballot == first[0].ballot and to in ("p1", "p2", "p3")
            return word.decree if told else None

        liar = Liar(7, tells)
        company = await liar.gathered()
        say, vouch = over(company[0].endpoint, MEMBERS), over(company[6].endpoint, MEMBERS)
        company[6].membership._channel.post = lambda to, message: None  # type: ignore[method-assign]
        company[0].membership.renew()
        await company.until(lambda: company[3].membership._change.acceptor.adopted is not None)
        (adopt,) = first
        vouch.post("p1", Echo(adopt.generation, adopt.ballot, mark_of(adopt.decree)))
        await asyncio.sleep(TRY_FOR * PATIENCE_S - 1.0)
        say.post("p1", Install(adopt.decree))
        await company.until(lambda: company[1].membership.view.generation > adopt.generation)
        await asyncio.sleep(2.0)
        second, ballot, victims = another(adopt.decree, 7), adopt.ballot + (1 << 30), ("p2", "p3", "p4", "p5")
        for to in victims:
            say.post(to, Adopt(adopt.generation, ballot, second))
        await asyncio.sleep(2.0)
        for to in victims:
            vouch.post(to, Echo(adopt.generation, ballot, mark_of(second)))
            say.post(to, Install(second))
        await company.until(lambda: all(one.membership.view.generation > adopt.generation for one in liar.honest[:-1]))
        assert len(liar.views[adopt.generation + 1]) == 1
        await company.over()

    simulate(play(), within_s=2_000.0)


@pytest.mark.parametrize("withholds", [False, True], ids=["at once", "late"])
@pytest.mark.parametrize("n", [4, 7])
def test_a_member_that_proposes_another_decree_when_the_leaders_may_hold_moves_no_member_away(
    n: int, withholds: bool
) -> None:
    """The last of `n` does not lead. `withholds`: it answers the leader only after it has told the others its own."""

    async def play() -> None:
        company, views = Company(n, rounds=100_000, train_s=lambda index: 0.5), defaultdict[int, set[View]](set)
        await company.gathered(2)
        for walker in company.walkers[:-1]:
            walker.membership.on_view.append(lambda view: views[view.generation].add(view))
        rival, said = company[n - 1], False
        say, loop = rival.membership._channel.post, asyncio.get_running_loop()

        def propose(answer: Adopted) -> None:
            ballot = (answer.ballot // RANKS + 1) * RANKS + rival.membership.view.ids.index(rival.id)
            decree = rival.membership._change.acceptor.adopted
            assert decree is not None
            for to in (walker.id for walker in company.walkers[1:-1]):
                say(to, Adopt(answer.generation, ballot, another(decree, 7)))
                say(to, Echo(answer.generation, ballot, mark_of(another(decree, 7))))
                say(to, Install(another(decree, 7)))

        def lie(to: str, message: object) -> None:
            nonlocal said
            if said or not isinstance(message, Adopted):
                say(to, message)
                return
            said, wait_s = True, 1.2 * rival.endpoint.patience_s if withholds else 0.0
            loop.call_later(wait_s, propose, message)
            loop.call_later(wait_s + 0.01, say, to, message)

        rival.membership._channel.post = lie  # type: ignore[method-assign]
        generation = company[1].membership.view.generation
        company[0].membership.renew()
        honest = company.walkers[:-1]
        await company.until(lambda: said and all(one.membership.view.generation > generation for one in honest))
        reached = max(walker.sgd.state.round for walker in honest) + 4
        await company.until(lambda: all(walker.sgd.state.round >= reached for walker in honest))
        assert {generation: len(those) for generation, those in views.items() if len(those) > 1} == {}
        assert_one_truth(company)
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_of_three_the_leader_that_tells_each_of_the_others_another_decree_is_reported_by_both() -> None:
    """None of three can tell which of the two others lies, so that is all that they can do."""

    async def play() -> None:
        liar = Liar(3, lambda to, word: another(word.decree, int(to[1])))
        company = await liar.gathered()
        company[0].membership.renew()
        for walker, other in ((company[1], "p2"), (company[2], "p1")):
            await company.until(lambda walker=walker: "p0" in walker.endpoint.refused)
            assert f"told {other} of another view than this peer" in walker.endpoint.refused["p0"]
        await company.over()

    simulate(play(), within_s=2_000.0)


@pytest.mark.parametrize("others", [2, 3, 4, 6])
def test_one_member_that_says_it_adopted_another_decree_keeps_no_member_from_the_view(others: int) -> None:
    async def play() -> None:
        company = Company(1 + others, rounds=100_000, train_s=lambda index: 0.5)
        await company.gathered(2)
        liar = company[others].membership._channel
        say = liar.post

        def lie(to: str, message: object) -> None:
            say(to, replace(message, mark=message.mark + 1) if isinstance(message, Echo) else message)

        liar.post = lie  # type: ignore[method-assign]
        generation = company[0].membership.view.generation
        company[0].membership.renew()
        await company.until(lambda: company[0].membership.view.generation > generation)
        await asyncio.sleep(0.5)
        assert {walker.membership.view for walker in company.walkers} == {company[0].membership.view}
        assert not company[0].membership.removals
        await company.over()

    simulate(play(), within_s=2_000.0)


def test_any_two_groups_that_are_enough_have_more_in_common_than_may_lie() -> None:
    for reached in range(1, 200):
        liars = (reached - 1) // 3
        assert 2 * enough_of(reached) - reached > liars or reached <= 1
        assert enough_of(reached) <= reached - liars, "those that do not lie are enough"


def test_partners_of_many_members_are_mutual_few_and_connected() -> None:
    peers = [f"{index:064x}" for index in range(600)]
    of = {peer: {*partners(peers, peer)} for peer in peers}
    assert all(peer in of[other] for peer in peers for other in of[peer])
    assert all(8 <= len(others) <= 70 for others in of.values())
    reached, found = {peers[0]}, {peers[0]}
    while found:
        found = set[str]().union(*(of[peer] for peer in found)) - reached
        reached |= found
    assert len(reached) == 600, "they are in one piece"


@pytest.mark.parametrize("share", [0.5, 0.85])
def test_in_a_large_view_a_member_knows_by_its_partners_that_enough_have_adopted(share: float) -> None:
    """It hears of no others, and those are fewer than enough of all."""
    roster, _ = roster_of(200)
    echoes, decree = Echoes(roster._channel, roster), Decree(View(8, (), True), Version(3, 30), (), ())
    echoes.adopted(RANKS + 199, decree, "p199")
    heard = partners(roster.view.ids, roster.id)
    for peer in heard[: int(share * len(heard))]:
        echoes._on_echo(Envelope(peer, Echo(7, RANKS + 199, mark_of(decree)), b"", 0))
    assert echoes.may_hold() is (share > 2 / 3)
    assert echoes.by_another(decree, "p198"), "one of so many is honest"


def test_an_acceptor_of_a_former_life_takes_no_decree_for_decided() -> None:
    """It is in no view, and hears no echoes; else it would adopt no other decree ever."""
    roster, _ = roster_of(5)
    roster.view, echoes = NOBODY, Echoes(roster._channel, roster)
    echoes.adopted(RANKS, Decree(View(8, (), True), Version(3, 30), (), ()), "p1")
    assert not echoes.may_hold()
