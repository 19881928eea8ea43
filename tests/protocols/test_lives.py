"""Lives, learners and outages: a key that is started again, a newcomer that only learns, members out of reach."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from company import Company, Shelf, Walker, assert_one_truth, started
from conformance import over
from simulated import LINK, PATIENCE_S, endpoint_in, layout_of, no_complaints, simulate  # noqa: F401

from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.local_sgd import catch_up
from samovar.protocols.local_sgd.learner import Learner
from samovar.protocols.local_sgd.rounds import Contribution
from samovar.protocols.members.errors import Expelled, MembershipError, NoQuorum
from samovar.protocols.members.ledger import Ballot, Former, Ledger, Seat, Vote
from samovar.protocols.members.messages import MEMBERS, Install
from samovar.protocols.members.quorum import Quorum
from samovar.protocols.members.roster import Roster
from samovar.protocols.members.view import Attributes, Decree, Member, Version, View
from samovar.sims.world.network import Network


def now() -> float:
    return asyncio.get_running_loop().time()


def scene(play: Callable[[], Awaitable[Any]], within_s: float = 2_000.0) -> Any:
    return simulate(play(), within_s=within_s)


# ---- a key is not a life


def test_a_view_that_was_meant_for_a_former_life_is_not_taken() -> None:
    async def play() -> None:
        company = Company(3, rounds=30)
        await company.gathered(2)
        company[2].crash()
        await company[2].ended()
        anew, host = company.walker(2, life=1), company[0]
        await anew.endpoint.open()
        for other in ("p0", "p1"):
            anew.endpoint.admit(other)
        anew.endpoint.dial("p0", "sim://p0")
        view = (await anew.membership.knock("p0")).view
        former, life = view.member("p2"), anew.membership.me.life
        assert former is not None
        assert former.life != life
        for member, taken in ((former, 0), (replace(former, life=life), 90)):
            members = tuple(member if one.id == "p2" else one for one in view.members)
            meant = Decree(View(90, members, True), Version(2, 0), ("p0",), ())
            over(host.endpoint, MEMBERS).post("p2", Install(meant))
            await asyncio.sleep(1.0)
            assert anew.membership.view.generation == taken
        anew.membership.close()
        anew.endpoint.abort()
        await company.over()

    scene(play)


def lets_in(view: View) -> bool:
    return len(view.everybody) > 3


def makes_members(view: View) -> bool:
    return len(view.ids) > 3


@pytest.mark.parametrize("what", [lets_in, makes_members])
def test_newcomers_hear_of_their_view_though_its_leader_dies_while_it_tells(what: Callable[[View], bool]) -> None:
    async def play() -> Company:
        company = Company(3, rounds=30, train_s=lambda index: 1.0)
        await company.gathered(3)
        told, post = asyncio.Event(), company[0].endpoint.post

        def dying(channel: str, to: str, message: object) -> None:
            if isinstance(message, Install) and what(message.decree.view):
                told.set()
                if to != "p1":
                    return
            post(channel, to, message)

        company[0].endpoint.post = dying  # type: ignore[method-assign]
        for index in range(3, 7):
            company.add(index, "p1")
        await told.wait()
        await asyncio.sleep(0.06)
        company[0].crash()
        await company.ended()
        return company

    company = scene(play)
    company.agree()
    assert len(company.walkers[-1].outcomes) > 0


@pytest.mark.parametrize(("count", "restarted", "records"), [(4, 1, False), (2, 1, False), (4, 2, False), (3, 2, True)])
def test_a_run_outlives_the_restart_of_half_of_it_or_with_records_of_most(
    count: int, restarted: int, records: bool
) -> None:
    company = scene(lambda: restarts(count, restarted, records))
    living = [walker for walker in company.walkers if walker.index < count - restarted or walker.life]
    company.agree(living)
    assert_one_truth(company)
    assert any(outcome.members == count for outcome in company[0].outcomes[6:]), "they take part again"


def test_three_of_four_that_restart_with_their_records_go_on() -> None:
    company = scene(lambda: restarts(4, 3, records=True))
    company.agree([company[0], *(walker for walker in company.walkers if walker.life)])
    assert_one_truth(company)


def test_a_majority_that_is_over_without_a_record_ends_the_run_at_once() -> None:
    company = scene(lambda: restarts(3, 2, records=False))
    assert isinstance(company[0].error, NoQuorum)
    assert "1 of 3 peers are left, 2 are needed" in str(company[0].error)
    assert company.ended_s < 3 * PATIENCE_S


async def restarts(count: int, restarted: int, records: bool) -> Company:
    company = Company(count, rounds=16, train_s=lambda index: 1.0, records=records)
    await company.gathered(5)
    for index in range(count - restarted, count):
        company[index].crash()
    await asyncio.sleep(0.5)
    again_s = now()
    for index in range(count - restarted, count):
        company.add(index, "p0", life=1)
    await company[0].ended()
    company.ended_s = now() - again_s
    await company.ended()
    return company


def test_a_life_keeps_the_word_of_the_life_before() -> None:
    """What it has promised and adopted it tells again; what it voted for it tells, and that it has it no more."""

    async def play() -> None:
        shelf, member = Shelf(), Member("p1", "p1", "sim://p1", Attributes(data_shard=1), 1, life=7)
        view = View(5, (replace(member, id="p0", life=3), member), True)
        decree = Decree(view, Version(3, 33), ("p0", "p1"), ())
        ledger = Ledger(shelf)
        assert ledger.former() is None
        kept: list[str] = []
        ledger.keep(Seat(member, decree), lambda: kept.append("seat"))
        ledger.keep(Ballot(7, 5, 65537, 65536, decree), lambda: kept.append("ballot"))
        ledger.keep(Vote(7, 5, Version(4, 44)), lambda: kept.append("vote"))
        await ledger.synced()
        assert kept == ["seat", "ballot", "vote"]
        former = Ledger(shelf).former()
        assert former is not None
        assert (former.seat.me, former.seat.decree) == (member, decree)
        assert former.ballot == Ballot(7, 5, 65537, 65536, decree)
        assert former.vote == Vote(7, 5, Version(4, 44))

        company = Company(2, records=True)
        company.stores[1] = shelf
        walker = company.walker(1, life=1)
        promise = walker.membership._change.acceptor.promise(1)
        assert (promise.promised, promise.adopted, promise.decree) == (65537, 65536, decree)
        assert (promise.result, promise.has, promise.former) == (Version(4, 44), False, True)
        acceptor = walker.membership._change.acceptor
        without = replace(decree, view=replace(view, generation=6, members=view.members[:1]))
        acceptor.follow(without)
        assert acceptor.promise(2).generation == 5, "that life is not in it"
        another = replace(view, generation=6, members=(view.members[0], replace(member, life=8)))
        acceptor.follow(replace(decree, view=another))
        assert acceptor.promise(2).generation == 5, "another life has that seat"
        acceptor.follow(replace(decree, view=replace(view, generation=7)))
        promise = acceptor.promise(3)
        assert (promise.generation, promise.promised, promise.decree, promise.former) == (7, 3, None, True)
        walker.membership.close()

        Ledger(shelf).strike()
        assert Ledger(shelf).former() is None, "who joins anew of its own will forgets it all"

    scene(play)


def test_a_torn_or_foreign_record_is_none() -> None:
    async def play() -> None:
        shelf = Shelf()
        for entry in (b"", b"\x93", b"junk" * 9, b"\x92\x01\x02"):
            shelf.entries["seat"] = entry
            assert Ledger(shelf).former() is None

    scene(play)


class FullShelf(Shelf):
    """One on which nothing more can be written; `stuck`: nor removed."""

    def __init__(self, stuck: bool) -> None:
        super().__init__()
        self.stuck = stuck

    async def save(self, name: str, entry: bytes) -> None:
        raise OSError(28, "No space left on device")

    def clear(self) -> None:
        if self.stuck:
            raise OSError(30, "Read-only file system")
        super().clear()


@pytest.mark.parametrize("stuck", [False, True])
def test_a_word_that_cannot_be_kept_is_given_only_if_no_older_one_is_left(stuck: bool) -> None:
    async def play() -> None:
        shelf, told, given = FullShelf(stuck), list[str](), list[bool]()
        shelf.entries["vote"] = b"an older one"
        ledger = Ledger(shelf)
        ledger.on_trouble.append(told.append)
        ledger.keep(Vote(1, 1, Version(1, 1)), lambda: given.append(True))
        with pytest.raises(MembershipError, match="neither written nor removed") if stuck else contextlib.nullcontext():
            await ledger.synced()
        assert given == ([] if stuck else [True])
        assert bool(shelf.entries) is stuck
        assert "No space left on device" in told[0]
        assert len(told) == 1 + stuck

    scene(play)


def test_a_record_that_could_not_be_written_is_written_whole_as_soon_as_possible() -> None:
    async def play() -> None:
        shelf, full, told = Shelf(), FullShelf(stuck=True), list[str]()
        me = Member("p1", "p1", "a", Attributes(data_shard=1), 1, life=7)
        seats = [Seat(me, Decree(View(generation, (me,), True), Version(3, 33), ("p1",), ())) for generation in (5, 6)]
        ledger = Ledger(shelf)
        ledger.keep(seats[0])
        await ledger.synced()
        full.entries = shelf.entries
        ledger._store = full
        ledger.keep(seats[1], lambda: told.append("seated"))
        await ledger.on_record(Vote(7, 6, Version(4, 4)))
        assert Ledger(shelf).former() == Former(seats[0], None, None), "an older word, so nothing was said"
        ledger._store = shelf
        ledger.keep(ballot := Ballot(7, 6, 99, 0, None), lambda: told.append("promised"))
        await ledger.synced()
        assert Ledger(shelf).former() == Former(seats[1], ballot, Vote(7, 6, Version(4, 4)))
        assert told == ["promised"]

    scene(play)


def roster_of(count: int, generation: int = 5, *, started: bool = True) -> Roster:
    channel = Channel(endpoint_in(Network(parse_link(LINK), 1), "p0"), MEMBERS)
    roster = Roster(channel, Member("p0", "p0", "", Attributes(), 1))
    roster.view = View(
        generation,
        tuple(Member(f"p{i}", f"p{i}", "", Attributes(data_shard=i), 1, life=i + 1) for i in range(count)),
        started,
    )
    return roster


def test_half_of_a_view_decides_only_when_all_others_are_over() -> None:
    async def play() -> None:
        roster = roster_of(4)
        quorum = Quorum(roster, None)
        assert quorum.enough(["p0", "p1", "p2"])
        assert not quorum.enough(["p0", "p1"])
        assert not quorum.hopeless(["p0", "p1"]), "the others may come back"
        roster.over = {4}
        assert not quorum.enough(["p0", "p1"]), "p2 may have decided otherwise, with a p3 that was not over yet"
        roster.over = {3, 4}
        assert quorum.enough(["p0", "p1"])
        assert not quorum.enough(["p0"])
        roster.over = {2, 3, 4}
        assert not quorum.enough(["p0"])
        assert quorum.hopeless(["p0"])
        odd = roster_of(3)
        odd.over = {2, 3}
        assert not Quorum(odd, None).enough(["p0"]), "two of three decide, so one may not know"
        assert Quorum(odd, 1).enough(["p0"]), "unless a user says so"

    scene(play)


def test_before_the_start_half_of_a_view_decides_only_with_its_most_senior_member() -> None:
    """Which may have decided by itself before it died, and taken that with it."""

    async def play() -> None:
        roster = roster_of(2, started=False)
        assert Quorum(roster, None).enough(["p0"])
        roster.over = {1}
        assert not Quorum(roster, None).enough(["p1"])

    scene(play)


# ---- learner before member


def test_newcomers_that_die_before_they_took_part_cost_the_others_nothing() -> None:
    async def play() -> Company:
        company = Company(3, rounds=20, train_s=lambda index: 1.0)
        await company.gathered(5)
        newcomers = [company.add(index, "p0") for index in range(3, 7)]
        await company.until(lambda: all(new.membership.view.ids for new in newcomers))
        assert all(new.membership.learns for new in newcomers)
        for new in newcomers:
            new.crash()
        await company.ended()
        return company

    company = scene(play)
    company.agree(company.walkers[:3])
    assert max(len(outcome.state.vector) and outcome.members for outcome in company[0].outcomes) == 3


def test_many_learners_become_members_in_groups_smaller_than_the_view() -> None:
    async def play() -> list[tuple[int, int]]:
        company = Company(3, rounds=40, train_s=lambda index: 0.5)
        company.peers_max = 16
        await company.gathered(3)
        for index in range(3, 13):
            company.add(index, "p0")
        sizes = []
        while len(company[0].membership.view.ids) < 13:
            view = company[0].membership.view
            if not sizes or sizes[-1][0] != view.generation:
                sizes.append((view.generation, len(view.ids)))
            await asyncio.sleep(0.02)
        await company.ended()
        company.agree()
        return sizes

    sizes = [size for _, size in scene(play)]
    assert all(after < 2 * before for before, after in pairwise(sizes))


@pytest.mark.parametrize(("size", "takes_part"), [(200_000, False), (1_000, True)])
def test_no_member_waits_for_a_learner_whose_connection_is_too_slow(size: int, takes_part: bool) -> None:
    async def play() -> tuple[int, int, Walker, list[str]]:
        company = Company(3, rounds=100_000, size=size, link="1gbit,5ms", train_s=lambda index: 0.5, schedule="sharded")
        company.network.links["p3"] = parse_link("400kbit,20ms")
        await company.gathered(10)
        began, first = now(), company[0].sgd.state.round
        await asyncio.sleep(20)
        alone = (company[0].sgd.state.round - first) / (now() - began)
        told: list[str] = []
        late = company.add(3, "p0")
        late.membership.on_waiting.append(told.append)
        began, first = now(), company[0].sgd.state.round
        await asyncio.sleep(60)
        with_it = (company[0].sgd.state.round - first) / (now() - began)
        learns, round_ = late.membership.learns, late.sgd.state.round
        await company.over()
        assert round_ > 0, "it has fetched the state"
        return alone, with_it, learns, told

    alone, with_it, learns, told = scene(play, within_s=10_000)
    assert learns is not takes_part
    if takes_part:
        assert not told
    else:
        assert with_it >= 0.9 * alone
        assert "it stays a learner" in told[0]


def test_a_fetch_goes_on_while_the_view_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []
    usual = catch_up.fetch

    async def counted(channel: Any, donor: str, **more: Any) -> Any:
        begun.append(donor)
        return await usual(channel, donor, **more)

    monkeypatch.setattr(catch_up, "fetch", counted)

    async def play() -> int:
        company = Company(3, rounds=100_000, size=30_000, link="100mbit,5ms", train_s=lambda index: 0.5)
        await company.gathered(3)
        late = company[2]
        company.network.links["p2"] = parse_link("800kbit,20ms")
        late.sgd.state = replace(late.sgd.state, round=0)  # it has lost what it held
        company[0].membership.renew()
        await company.until(lambda: late.sgd._lag.behind is not None)
        begun.clear()
        first = late.membership.view.generation
        while late.sgd._lag.behind is not None:
            company[0].membership.renew()
            await asyncio.sleep(1.0)
        changes = late.membership.view.generation - first
        await company.over()
        return changes

    assert scene(play) >= 2
    assert len(begun) == 1


def test_an_expelled_peer_begins_nothing_more_while_it_catches_up() -> None:
    async def play() -> None:
        roster = roster_of(2)
        roster.fail(Expelled("p1"))
        with pytest.raises(Expelled):
            async with roster.only_while(lambda: True):
                await asyncio.get_running_loop().create_future()
        roster.failed = None
        async with roster.only_while(lambda: False):
            await asyncio.get_running_loop().create_future()

    scene(play)


# ---- resumed, out of reach


def test_a_run_is_resumed_from_the_only_checkpoint_that_is_ahead_or_without_it() -> None:
    """Its holder may even go while the others fetch it: then all go on from what they have."""
    for victim in (3, 1):

        async def play(victim: int = victim) -> Company:
            company = Company(4, rounds=42, size=100_000, link="10mbit,40ms", founders=4)
            for walker in company.walkers:
                had = 40 if walker.index == 1 else 30
                state = replace(walker.sgd.state, round=had, step=10 * had)
                walker.sgd.state = replace(state, vector=state.vector + float(had))
            company.start()
            await company.until(lambda: started(company))
            await asyncio.sleep(0.2)
            assert {walker.sgd.state.round for walker in company.walkers} == {30, 40}
            company[victim].crash()
            await company.ended()
            return company

        company = scene(play)
        company.agree()
        first = min(outcome.state.round for outcome in company[0].outcomes if not outcome.caught_up)
        assert first == (41 if victim == 3 else 31)


def test_members_out_of_reach_are_waited_for_and_named_until_they_are_back() -> None:
    async def play() -> tuple[Company, list[str]]:
        company = Company(4, rounds=20, train_s=lambda index: 1.0, give_up_after_s=None)
        await company.gathered(5)
        told: list[str] = []
        for walker in company.walkers:
            walker.membership.on_waiting.append(told.append)
        company.part(["p0"], ["p1"], ["p2"], ["p3"])
        await asyncio.sleep(100)
        assert not any(walker.error for walker in company.walkers)
        company.heal()
        await company.ended()
        return company, told

    company, told = scene(play)
    company.agree()
    assert company.network.happened["cut"] > 0
    alone = [why for why in told if "only 1 of 4 peers answer" in why]
    assert any("p1, p2, p3 not" in why for why in alone)
    assert 8 <= len(alone) <= 16, "each of them every 30 s"


def test_the_wait_for_members_out_of_reach_can_be_limited() -> None:
    async def play() -> Company:
        company = Company(4, rounds=20, train_s=lambda index: 1.0, give_up_after_s=20.0)
        await company.gathered(5)
        company.part(["p0"], ["p1"], ["p2"], ["p3"])
        await company.ended()
        return company

    company = scene(play)
    assert all(isinstance(walker.error, NoQuorum) for walker in company.walkers)


def test_members_that_were_seen_to_end_are_not_waited_for() -> None:
    """Three of four were seen to end: nobody can come back."""

    async def play() -> tuple[Company, float]:
        company = Company(4, rounds=20, train_s=lambda index: 1.0)
        await company.gathered(5)
        for index in (1, 2, 3):
            company[index].crash()
            company[0].endpoint.gone(f"p{index}", "its process was killed")
        began = now()
        await company.ended()
        return company, now() - began

    company, took_s = scene(play)
    assert isinstance(company[0].error, NoQuorum)
    assert took_s < 2 * PATIENCE_S


def test_a_loss_below_zero_is_a_loss_like_others() -> None:
    """The weighted mean of the peers' losses may be anything."""

    async def play() -> Company:
        company = Company(3, rounds=4)
        for walker in company.walkers:
            walker.brings = lossless(walker)  # type: ignore[method-assign]
        return await company.run()

    def lossless(walker: Walker) -> Callable[[], Contribution]:
        usual = walker.brings
        return lambda: usual()._replace(loss=-3.5)

    company = scene(play)
    company.agree()
    assert company[0].outcomes[-1].loss == pytest.approx(-3.5)


# ---- the end of all members, and of all room


@pytest.mark.parametrize("how", ["leave", "finish"])
def test_a_learner_whose_members_have_all_gone_for_good_ends(how: str) -> None:
    async def play() -> Company:
        company = Company(3, rounds=400 if how == "leave" else 25, size=50_000, link="10mbit,40ms")
        await company.gathered(3)
        company.network.links["p3"] = parse_link("80kbit,40ms")
        slow = company.add(3, "p1")
        await company.until(lambda: slow.membership.learns)
        await asyncio.sleep(10)
        if how == "leave":
            await asyncio.gather(*(walker.leave() for walker in company.walkers[:3]))
        await company.ended()
        return company

    slow = scene(play).walkers[3]
    assert isinstance(slow.error, MembershipError)
    assert "all members of the run have left" in str(slow.error)


@pytest.mark.parametrize(("deserted", "error"), [(True, MembershipError), (False, Expelled)])
def test_a_learner_without_members_waits_for_no_peer(deserted: bool, error: type[Exception]) -> None:
    """It ends where they are gone for good, and comes anew where they may have gone on without it."""
    alone: Any = SimpleNamespace(me=SimpleNamespace(life=1), leaders=(), deserted=deserted)
    alone.view = SimpleNamespace(by_seniority=("p0",))
    nothing: Any = None
    calls = {"standing": nothing, "over": nothing, "adopt": nothing}
    learner = Learner(nothing, alone, layout_of(10), 0, **calls)
    with pytest.raises(error, match="all members of the run have left" if deserted else "joining again through p0"):
        asyncio.run(learner.learn())


def test_no_view_after_view_is_decided_for_newcomers_that_there_is_no_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def play() -> None:
        company = Company(3, rounds=1000, train_s=lambda index: 10.0)
        await company.gathered(2)
        view = company[0].membership.view
        monkeypatch.setattr("samovar.protocols.members.view.VIEW_BYTES_MAX", 4 * view.members[0].nbytes + 10)
        for index, contact in ((3, "p1"), (4, "p2"), (5, "p0")):
            company.add(index, contact)
        await asyncio.sleep(60)
        assert len(company[0].membership.view.everybody) == 4
        assert company[0].membership.view.generation <= view.generation + 3
        assert sum("the run is full" in str(walker.error) for walker in company.walkers[3:]) == 2
        await company.over()

    scene(play)
