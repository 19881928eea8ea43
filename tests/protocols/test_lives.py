"""Lives: a key that is started again under its record, and the votes of the life before."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from company import Company, Shelf, assert_one_truth
from conformance import over
from scenes import roster_of, scene
from simulated import LINK, PATIENCE_S, layout_of, no_complaints, now, simulate  # noqa: F401

from samovar.protocols.members.errors import MembershipError, NoQuorum
from samovar.protocols.members.ledger import Ballot, Former, Ledger, Seat, Vote
from samovar.protocols.members.messages import MEMBERS, Install
from samovar.protocols.members.quorum import Quorum
from samovar.protocols.members.view import Attributes, Decree, Member, Version, View


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
        assert Ledger(shelf).former() is None, "a peer that joins anew of its own will forgets it all"

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
