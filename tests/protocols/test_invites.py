"""An invite lets in as many keys as it says, for as long as it says, and until it is revoked, whoever lives."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from company import Company, Walker
from simulated import PATIENCE_S, endpoint_in, no_complaints, simulate  # noqa: F401

from samovar.protocols.limits import VIEW_BYTES_MAX
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.errors import JoinRefused, MembershipError
from samovar.protocols.members.invitation import KEYS_MAX, Invitation
from samovar.protocols.members.invites import ask_admission
from samovar.protocols.members.messages import Install
from samovar.protocols.members.view import Attributes, Decree, Member, Version, View
from samovar.protocols.wire.frames import HEADER_BYTES_MAX, encode

OLD, NEW = "guest", "another guest"


class Party(Company):
    """A company that newcomers come to by an invite: nobody else knows their keys."""

    def __init__(self, n: int, invitation: Invitation | None, **settings: Any) -> None:
        super().__init__(n, rounds=10_000, train_s=lambda index: 0.5, invitation=invitation, **settings)
        self.peers_max, self.guests = n, 0

    async def asks(self, key: str, contact: str, guest: str = OLD) -> str:
        """Have `key` admitted, as a guest; why not."""
        self.guests += 1
        endpoint = endpoint_in(self.network, f"{guest}/{self.guests:02}", seed=self.guests)
        await endpoint.open()
        endpoint.dial(contact, f"sim://{contact}")
        try:
            await ask_admission(endpoint, contact, key)
        except PeerLost as lost:
            return lost.why
        finally:
            endpoint.abort()
        return ""

    async def comes(self, index: int, contact: str, guest: str = OLD, *, life: int = 0) -> Walker | str:
        """A newcomer, when it is let in or has failed; or why its key is not admitted."""
        if why := await self.asks(f"p{index}", contact, guest):
            return why
        walker = self.add(index, contact, life=life)
        await self.until(lambda: walker.error is not None or inside(self, walker))
        return walker


def inside(company: Company, walker: Walker) -> bool:
    return all(
        walker.id in other.membership.view.everybody
        for other in company.survivors
        if other.membership.view.generation and other.error is None
    )


def let_in(company: Company) -> set[str]:
    founders = {f"p{index}" for index in range(company.founders)}
    views = [walker.membership.view for walker in company.survivors]
    return {peer for view in views for peer in view.everybody} - founders


def party(
    main: Callable[[Party], Coroutine[Any, Any, None]], n: int, invitation: Invitation | None, **how: Any
) -> None:
    async def play() -> None:
        company = Party(n, invitation, **how)
        await company.gathered(2)
        await main(company)
        await company.over()

    simulate(play(), within_s=2_000.0)


def outcome(came: Walker | str) -> str:
    return came if isinstance(came, str) else str(came.error or "")


@pytest.mark.parametrize("seed", range(4))
def test_no_more_keys_get_in_than_an_invite_is_for_however_many_come_at_once_to_different_members(seed: int) -> None:
    async def main(company: Party) -> None:
        came = await asyncio.gather(*(company.comes(4 + n, f"p{n % 4}") for n in range(8)))
        told = [outcome(one) for one in came]
        assert told.count("") == len(let_in(company)) == 3
        assert {why for why in told if why} == {
            "this invite has been used up: 3 of 3 keys; ask for a new one: samovar invite RUN --new"
        }
        await company.until(lambda: all(one.membership.view.generation for one in company.survivors if not one.error))
        assert {walker.membership.view.invitation for walker in company.survivors if walker.error is None} == {
            Invitation(OLD, 3, 3)
        }

    party(main, 4, Invitation(OLD, 3), seed=seed)


def test_a_coordinator_that_is_killed_while_many_come_makes_no_use_more_and_none_less() -> None:
    async def main(company: Party) -> None:
        coming = [asyncio.create_task(company.comes(4 + n, f"p{1 + n % 3}")) for n in range(8)]
        await company.until(lambda: any(walker.membership._change.leads for walker in company.walkers[:1]))
        company.walkers.pop(0).crash()
        told = [outcome(one) for one in await asyncio.gather(*coming)]
        assert told.count("") == len(let_in(company)) == 3, told

    party(main, 4, Invitation(OLD, 3))


def test_a_key_that_comes_again_uses_nothing_anew() -> None:
    async def main(company: Party) -> None:
        for life in range(3):
            came = await company.comes(3, f"p{life}", life=life)
            assert isinstance(came, Walker), came
            assert came.error is None
            came.crash()
            await company.until(lambda: "p3" not in company[0].membership.view.everybody)
        assert outcome(await company.comes(4, "p1")) == ""
        assert "used up: 2 of 2" in outcome(await company.comes(5, "p2"))

    party(main, 3, Invitation(OLD, 2))


def test_an_invite_ends_when_its_time_is_over_though_its_coordinators_die() -> None:
    async def main(company: Party) -> None:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        assert outcome(await company.comes(5, "p1")) == ""
        for _ in range(2):
            company.walkers.pop(0).crash()
            await company.until(lambda: len(company[0].membership.view.ids) == len(company.walkers))
        assert outcome(await company.comes(6, "p3")) == ""
        await asyncio.sleep(began_s + 100.0 - loop.time())
        why = outcome(await company.comes(7, "p4"))
        assert why == "the time of this invite is over; ask for a new one: samovar invite RUN --new"
        assert outcome(await company.comes(5, "p3", life=1)) == "", "its key was let in"

    party(main, 5, Invitation(OLD, seconds=100.0))


def test_a_waiting_newcomer_hears_at_once_that_the_last_use_went_to_another() -> None:
    async def main(company: Party) -> None:
        assert [await company.asks(f"p{index}", "p0") for index in (3, 4)] == ["", ""]
        one, other = company.add(3, "p1"), company.add(4, "p2")
        await company.until(lambda: one.error is not None or other.error is not None)
        (refused,) = [str(walker.error) for walker in (one, other) if isinstance(walker.error, JoinRefused)]
        assert refused.startswith("this invite has been used up: 1 of 1 keys")

    party(main, 3, Invitation(OLD, 1))


def test_a_revoked_invite_lets_no_key_in_and_its_members_stay() -> None:
    async def main(company: Party) -> None:
        assert outcome(await company.comes(3, "p1")) == ""
        assert await company.asks("p4", "p0") == "", "vouched for, and in no view yet"
        await company[1].membership.inviting.replace(Invitation(NEW, 1))
        late = company.add(4, "p2")
        await company.until(lambda: late.error is not None)
        assert "this invite has been revoked" in str(late.error)
        assert "not heard of" in await company.asks("p5", "p2"), "the handshake is refused"
        assert outcome(await company.comes(6, "p2", NEW)) == ""
        assert let_in(company) == {"p3", "p6"}
        await asyncio.sleep(2 * PATIENCE_S)
        assert "p4" not in company.network.doors._admitted["p0"]

    party(main, 3, Invitation(OLD))


def test_an_invite_is_revoked_though_the_coordinator_dies_with_the_word_of_it() -> None:
    async def main(company: Party) -> None:
        asking = asyncio.create_task(company[3].membership.inviting.replace(None))
        await company.until(lambda: company[0].membership._roster.invites.wish is not None)
        company.walkers.pop(0).crash()
        await asking
        await company.until(lambda: all(walker.membership.view.invitation is None for walker in company.walkers))
        assert "not heard of" in await company.asks("p5", "p2")

    party(main, 4, Invitation(OLD))


def test_of_two_changes_of_the_invite_at_once_one_fails() -> None:
    async def main(company: Party) -> None:
        told = await asyncio.gather(
            *(company[n].membership.inviting.replace(Invitation(f"guest {n}")) for n in (1, 2)), return_exceptions=True
        )
        assert sorted(map(type, told), key=str) == sorted((MembershipError, type(None)), key=str)

    party(main, 3, Invitation(OLD))


def test_a_change_of_the_invite_without_a_majority_is_told_as_failed() -> None:
    async def main(company: Party) -> None:
        company.part({"p0"}, {"p1", "p2"})
        with pytest.raises(MembershipError, match="the members have not agreed within 32 s"):
            await company[0].membership.inviting.replace(None)

    party(main, 3, Invitation(OLD), give_up_after_s=None)


def test_a_member_that_was_let_in_lets_others_in_too() -> None:
    async def main(company: Party) -> None:
        assert outcome(await company.comes(3, "p1")) == ""
        assert outcome(await company.comes(4, "p3")) == ""

    party(main, 3, Invitation(OLD))


def test_a_full_view_with_all_marks_of_keys_fits_in_a_message() -> None:
    member = Member("0" * 64, "n", "tcp://192.0.2.7:41234", Attributes(capacity=1 << 40), 0, "m" * 32, 1 << 61)
    members = (member,) * (VIEW_BYTES_MAX // member.nbytes)
    view = View(1 << 30, members, True, invitation=Invitation("0" * 64, 1, 1, 1e6), let_in=(2**63 - 1,) * KEYS_MAX)
    header = encode(Install(Decree(view, Version(1, 1), view.ids[:100], ())), 0, incarnation=1, towards=1, seq=1)
    assert len(header) < HEADER_BYTES_MAX
