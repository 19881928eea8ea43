"""Guests, who come with one key: none of them is taken for another, and all together they are bounded."""

import asyncio
import random
from collections.abc import Iterable

import pytest
from conformance import ask, over, solve
from post import Post, opened

from samovar.protocols.channel import Channel
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.link import PeerLost
from samovar.protocols.link.table import GUESTS_MAX
from samovar.protocols.link_quality.reachability import AskReach, Prober
from samovar.protocols.members.hello import AskRun, Greeter, ask_run
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.invites import Invites, ask_admission
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS, Join
from samovar.protocols.members.view import Attributes, Member, Version
from samovar.protocols.transfer.snapshot_transfer import AskManifest, Manifest
from samovar.sims.world.loop import run_virtual


async def house(post: Post, members: Iterable[str] = ()) -> Endpoint:
    """A peer that lets in whom a guest asks for."""
    endpoint = await greeter(post)
    Invites(Channel(endpoint, MEMBERS), Invitation("guest"), members=lambda: members)
    return endpoint


async def greeter(post: Post) -> Endpoint:
    endpoint = await opened(post, "a", 1)
    Greeter(endpoint, run="run", settings="{}")
    return endpoint


def test_as_many_guests_as_come_at_once_are_served_and_forgotten() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a = await house(post)
        guests = [await opened(post, f"guest/{n:02}", n) for n in range(GUESTS_MAX)]
        await asyncio.gather(*(ask_admission(guest, "a", f"key {n}") for n, guest in enumerate(guests)))
        assert not a.refused
        await asyncio.sleep(3 * a.patience_s)
        assert list(a.links) == []
        assert a.links._flow._paces == {}
        for endpoint in (a, *guests):
            endpoint.abort()

    run_virtual(main())


def test_guests_beyond_the_limit_take_the_places_of_guests_that_are_done() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a = await house(post)
        guests = [await opened(post, f"guest/{n:03}", n) for n in range(2 * GUESTS_MAX)]
        await asyncio.gather(*(ask_admission(guest, "a", f"key {n}") for n, guest in enumerate(guests)))
        assert len(list(a.links)) == GUESTS_MAX
        for endpoint in (a, *guests):
            endpoint.abort()

    run_virtual(main())


def test_a_guest_may_only_have_a_key_admitted_and_other_requests_cost_it_alone() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a = await house(post)
        solve(a)
        rude, polite = await opened(post, "guest/01", 2), await opened(post, "guest/02", 3)
        for question in (
            ask_run(rude, "a"),
            ask(rude, a, 1),
            over(rude).ask("a", lambda number: AskManifest(number, 0), answers=(Manifest,)),
        ):
            with pytest.raises((PeerLost, TimeoutError)):
                async with asyncio.timeout(20):
                    await question
        for _ in range(100):
            post.open["a"].frames("guest/01", b"\xc1", b"", 10)
        assert a._trust.cut_off("guest/01")
        await ask_admission(polite, "a", "key")
        assert set(a.refused) == {"guest/01"}
        for endpoint in (a, rude, polite):
            endpoint.abort()

    run_virtual(main())


def test_nobody_dials_a_host_that_a_guest_names_nor_tells_it_anything() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a = await greeter(post)
        dialled, answered = list[str](), list[object]()
        a._transport.dial = lambda peer, address: dialled.append(address)  # type: ignore[method-assign]
        rude = await opened(post, "guest/01", 2)
        membership = Membership(
            Channel(a, MEMBERS),
            Member("a", "a", "post://a", Attributes(), 0),
            Terms(run="run", layout="", model="", founders=1),
            invitation=Invitation("guest"),
        )
        Prober(a, lambda: membership.view.members)
        membership.found()
        for question in (
            lambda ask: Join(
                ask, "run", Member("guest/01", "g", "tcp://10.0.0.1:22", Attributes(), 0), "", "", Version(0, 0), True
            ),
            lambda ask: AskReach(ask, ("tcp://10.0.0.1:22",)),
            lambda ask: AskManifest(ask, 0),
            AskRun,
        ):
            with pytest.raises((PeerLost, TimeoutError)):
                async with asyncio.timeout(20):
                    answered.append(await over(rude).ask("a", question, answers=(object,)))
        await asyncio.sleep(1.0)
        assert (dialled, answered) == ([], [])
        membership.close()
        for endpoint in (a, rude):
            endpoint.abort()

    run_virtual(main())


def test_guests_that_come_again_and_again_by_new_connections_are_cut_off_together() -> None:
    async def main() -> None:
        post = Post(random.Random(1))
        post.lossy = False
        a, b = await house(post), await opened(post, "b", 2)
        solve(a)
        taken = 0
        for n in range(10_000):
            name = f"guest/{n:05}"
            if not a._trust.cut_off(name):
                taken += 1
            post.open["a"].frames(name, b"\xc1", b"", 10)
        assert taken == 16 * GUESTS_MAX
        assert len(a._trust._faults) <= taken
        assert len(list(a.links)) <= GUESTS_MAX
        assert await ask(b, a, 1) == 2, "a key that is no guest is none the worse for it"
        await asyncio.sleep(2 * a.interval_s)
        late = await opened(post, "guest/late", 3)
        await ask_admission(late, "a", "key")
        for endpoint in (a, b, late):
            endpoint.abort()

    run_virtual(main())
