"""A server of the parameter server beside a worker of its view that lies, floods it, or says nothing."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from conformance import eventually
from one_server import Present, Server, copy_of, view, with_server
from simulated import no_complaints  # noqa: F401

from samovar.aggregation.filters.pulls import PullFilters
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.presence import Presence
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.events import Doubted
from samovar.protocols.parameter_server.gathering import Gathering
from samovar.protocols.parameter_server.keys import Keys
from samovar.protocols.parameter_server.lost_range import LostRange
from samovar.protocols.parameter_server.messages import (
    FOREVER,
    PARAMETER_SERVER,
    Early,
    Enlist,
    Enlisted,
    Fetch,
    Holdings,
    Install,
    Installed,
    NotTaken,
    Pull,
    Pulled,
    Push,
    Pushed,
    Survey,
)
from samovar.protocols.parameter_server.serving import Serving
from samovar.protocols.parameter_server.store import CLOCKS_MAX, Copy, Entry, settled_at
from samovar.protocols.testpoints import WITNESS

Answer = Callable[[Channel, Envelope], None]


def tell(standing: int, version: int, knows: int, channel: Channel, envelope: Envelope) -> None:
    channel.post("server", Holdings(envelope.message.ask, (standing,), (version,), (knows,)))


HONEST: Answer = partial(tell, 0, 0, 0)


def silent(channel: Channel, envelope: Envelope) -> None:
    """Says nothing."""


def surveyed(server: Server, answers: dict[str, Answer]) -> None:
    """Have workers answer so the servers' question what they know, and begin the second view."""
    for worker, answer in answers.items():
        channel = Channel(server.endpoints[worker], PARAMETER_SERVER)
        channel.on(Survey, partial(answer, channel))
    server.parts.tenure.begin(view(2))
    server.parts.takeover.begin()


async def settled(server: Server, worker: str = "b") -> None:
    """Returns when the range is settled."""
    patience_s = server.endpoint.patience_s
    async with asyncio.timeout(10 * patience_s):
        await server.asked(worker, lambda ask: Enlist(ask, 2, 0, (0,)), Enlisted, within_s=9 * patience_s)


@pytest.mark.parametrize(
    "hostile",
    [
        partial(tell, settled_at(2), 1 << 62, 0),  # it would have the newest copy
        partial(tell, 0, 1, 0),
        partial(tell, 0, 0, settled_at(1)),  # it would know of a newer copy
        partial(tell, 0, 0, settled_at(2)),
        silent,
    ],
)
def test_no_answer_of_one_worker_keeps_a_range_from_being_settled_on_the_servers_copy(hostile: Answer) -> None:
    async def scene(server: Server) -> None:
        fetched: list[Envelope] = []
        Channel(server.endpoints["a"], PARAMETER_SERVER).on(Fetch, fetched.append)
        copy = server.parts.store.copies[0]
        copy.term, copy.restored = 1, True
        surveyed(server, {"a": hostile, "b": HONEST})
        await settled(server)
        assert server.parts.store.copies[0] is copy
        assert copy.clocks["b"] == 7, "the push that was acknowledged is there"
        assert not fetched
        server.parts.takeover.close()

    with_server(copy_of({"b": 7}, {"b"}, updates=7), scene)


def test_two_workers_that_know_of_a_newer_copy_are_believed() -> None:
    async def scene(server: Server) -> None:
        server.parts.store.copies[0].restored = True
        newer = partial(tell, 0, 0, settled_at(1))
        surveyed(server, {"a": newer, "b": newer})
        with pytest.raises(PeerLost):
            await settled(server)
        assert server.parts.tenure.lost == {0}
        server.parts.takeover.close()

    with_server(copy_of({"b": 7}, {"b"}, updates=7), scene)


def test_a_copy_of_which_one_worker_alone_tells_is_doubted_for_the_checkers_to_see() -> None:
    async def scene(server: Server) -> None:
        told: list[object] = []
        copy = server.parts.store.copies[0]
        copy.term, copy.restored = 1, True
        witness = SimpleNamespace(saw=told.append, sometimes=lambda what: None, buggify=lambda site: False)
        before = WITNESS.set(cast(Any, witness))
        surveyed(server, {"a": partial(tell, 0, 0, settled_at(1)), "b": HONEST})
        WITNESS.reset(before)
        await settled(server)
        assert [one for one in told if isinstance(one, Doubted)] == [Doubted(0, 2, ("a",))]
        server.parts.takeover.close()

    with_server(copy_of({"b": 7}, {"b"}, updates=7), scene)


def large(elements: int) -> Copy:
    return Copy(torch.zeros(elements), {}, term=1, updates=1, clocks={"a": 1, "b": 1}, enlisted={"a", "b"})


def test_answers_that_a_worker_does_not_take_do_not_pile_up() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        channel = Channel(server.endpoints["a"], PARAMETER_SERVER)
        taken = []

        async def ask() -> None:
            taken.append(await channel.ask("server", lambda ask: Pull(ask, 1, 0, (0,), (0,)), answers=(Pulled,)))

        asking = [asyncio.create_task(ask()) for _ in range(200)]  # it gives no credit for the answers
        refused = 0
        for task in asyncio.as_completed(asking, timeout=30.0):
            try:
                await task
            except PeerLost:
                refused += 1
            except TimeoutError:
                break
        assert refused + len(taken) >= 200 - 8, "so many may still be on their way"
        assert refused > 100
        for task in asking:
            task.cancel()
        assert await server.asked("b", lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled), "the others go on"

    with_server(large(200_000), scene)


def test_a_pull_of_more_than_a_message_carries_is_not_taken() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        answer = await server.asked("a", lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled, NotTaken)
        assert isinstance(answer, NotTaken)
        assert not answer.lost

    with_server(large(600_000), scene)


def test_questions_that_wait_keep_no_payload() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        pull = asyncio.create_task(server.asked("a", lambda ask: Pull(ask, 1, 9, (0,), (0,)), payload=bytes(1 << 20)))
        values = torch.ones(3).numpy().tobytes()
        push = server.asked(
            "a", lambda ask: Push(ask, 1, 2, (0,), (0,), (1,), False, 0, False, 0), Pushed, payload=values
        )
        pushing, parts = asyncio.create_task(push), server.parts
        await eventually(lambda: bool(parts.reads._parked and parts.intake._asked))
        assert not parts.reads._parked[0].envelope.payload
        assert not parts.intake._asked[0].payload
        pull.cancel()
        pushing.cancel()

    with_server(large(3), scene)


def test_ranges_that_there_are_not_are_not_placed() -> None:
    async def scene(server: Server) -> None:
        placement = server.parts.tenure.placement
        placement.chain(0)
        for number in range(1 << 61, (1 << 61) + 9):
            copy = partial(Install, epoch=1, range=number, at=0, base=0, past=0, version=0, updates=0)
            question = partial(copy, workers=(), clocks=(), enlisted=(), names=(), same=False)
            with pytest.raises(PeerLost, match="range that there is not"):
                await server.asked("a", question, Installed)
        assert {*placement._chains} == {0}, "each takes memory until the next view"

    with_server(copy_of({}, set(), updates=0), scene)


def test_a_worker_counts_once_in_a_step() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])

        async def push(worker: str, seq: int, value: float) -> object:
            values = torch.full((3,), value).numpy().tobytes()
            question = lambda ask: Push(ask, 1, seq, (0,), (0,), (1,), False, 0, False, 0)  # noqa: E731
            return await server.asked(worker, question, Pushed, Early, payload=values)

        first = asyncio.create_task(push("a", 2, 2.0))
        await eventually(lambda: server.parts.intake.has(0, "a", 2))
        assert isinstance(await push("a", 3, 100.0), Early)
        assert isinstance(await push("b", 2, 4.0), Pushed)
        assert isinstance(await first, Pushed)
        assert server.parts.store.copies[0].values.tolist() == [3, 3, 3]

    with_server(large(3), scene)


def test_a_push_that_takes_many_ranges_apart_takes_them_apart_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It claims to have read another number of updates of each range. One after another would take seconds."""
    parted, count = list[int](), 64

    def counted(self: Gathering, groups: Sequence[tuple[int, ...]], keys: Keys) -> list[Gathering]:
        parted.append(len(groups))
        return part(self, groups, keys)

    part = Gathering.parted
    monkeypatch.setattr(Gathering, "parted", counted)

    async def scene(server: Server) -> None:
        server.parts.tenure.settle(range(count))
        ranges, none, values = tuple(range(count)), (0,) * count, torch.ones(count).numpy().tobytes()
        asked = [
            asyncio.create_task(
                server.asked(
                    worker,
                    lambda ask, read=read: Push(ask, 1, 1, ranges, none, read, False, 0, False, 0),  # type: ignore[misc]
                    Pushed,
                    payload=values,
                )
            )
            for worker, read in (("a", none), ("b", ranges))
        ]
        assert [(await one).clocks for one in asked] == [(1,) * count] * 2
        assert all(copy.values.tolist() == [1.0] for copy in server.parts.store.copies.values())

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0, size=count), scene, ranges=count)
    assert parted == [count]


def test_clocks_of_workers_that_come_and_go_without_end_do_not_pile_up() -> None:
    """A message of more than 4096 of them is refused, and no range could move to another server."""

    async def scene(server: Server) -> None:
        copy = server.parts.store.copies[0]
        copy.clocks |= {f"ended {number}": FOREVER for number in range(4000)}
        copy.clocks |= {f"gone {number}": number for number in range(1000)}
        surveyed(server, {"a": HONEST, "b": HONEST})
        await settled(server)
        assert {"a", "b", "gone 999"} < copy.clocks.keys()
        assert len(copy.clocks) == CLOCKS_MAX
        server.parts.takeover.close()

    with_server(large(3), scene)


def test_a_worker_that_was_alone_and_claimed_to_be_far_ahead_stops_no_records() -> None:
    async def scene(server: Server) -> None:
        noticed: list[None] = []
        members = SimpleNamespace(on_view=[], lost=None, notify=lambda: noticed.append(None), view=view(1))
        serving = Serving(server.parts, cast(Any, members), cast(Any, None), cast(Any, None), every=2)
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.enlisted = {"a"}
        await server.asked("a", lambda ask: Enlist(ask, 1, FOREVER - 1, (0,)), Enlisted)
        await serving.bring(cast(Any, None))
        assert serving.version == FOREVER - 1
        await server.asked("a", lambda ask: Enlist(ask, 1, FOREVER, (0,)), Enlisted)
        copy.enlisted.add("b")
        for seq in (2, 3, 4):
            await pushed(server, "b", seq)
        assert noticed, "the next record is due"

    with_server(large(3), scene)


def test_a_worker_that_claimed_to_be_far_ahead_and_is_gone_leaves_its_clock_to_no_record() -> None:
    async def scene(server: Server) -> None:
        members = SimpleNamespace(on_view=[], lost=None, notify=lambda: None, view=view(1))
        serving = Serving(server.parts, cast(Any, members), cast(Any, None), cast(Any, None), every=2)
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.enlisted = {"b"}
        await server.asked("a", lambda ask: Enlist(ask, 1, FOREVER - 2, (0,)), Enlisted)
        lies = asyncio.create_task(pushed(server, "a", FOREVER - 1))
        await eventually(lambda: server.parts.intake.has(0, "a", FOREVER - 1))
        await pushed(server, "b", 2)
        await lies
        copy.enlisted.discard("a")  # as in the view that lacks it
        last = lambda ask: Push(ask, 1, 3, (0,), (0,), (1,), True, 0, False, 0)  # noqa: E731
        await server.asked("b", last, Pushed, payload=bytes(12))
        outcome = await serving.bring(cast(Any, None))
        assert outcome is not None
        assert outcome.version <= copy.version < 100

    with_server(large(3), scene)


def test_a_worker_that_claimed_to_be_far_ahead_and_is_gone_leaves_its_clock_to_no_other() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.enlisted = set()
        claimed = await server.asked("a", lambda ask: Enlist(ask, 1, FOREVER - 1, (0,)), Enlisted)
        assert claimed.clocks == (FOREVER - 1,)
        copy.enlisted.discard("a")  # as in the view that lacks it
        for resumed, asked, first in ((False, 0, copy.updates), (True, 0, copy.updates), (True, 5, 5)):
            copy.enlisted.discard("b")
            copy.clocks.pop("b", None)
            enlist = lambda ask, asked=asked, resumed=resumed: Enlist(ask, 1, asked, (0,), resumed)  # noqa: E731
            assert (await server.asked("b", enlist, Enlisted)).clocks == (first,)

    with_server(large(3), scene)


def test_a_worker_that_claims_to_be_far_ahead_and_is_there_leaves_its_clock_to_no_newcomer() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.enlisted = set()
        await server.asked("a", lambda ask: Enlist(ask, 1, FOREVER - 1, (0,)), Enlisted)
        entries = copy.version
        assert entries < 100
        (clock,) = (await server.asked("b", lambda ask: Enlist(ask, 1, 0, (0,)), Enlisted)).clocks
        assert clock == entries

    with_server(large(3), scene)


def test_a_newcomer_begins_at_the_clock_of_the_slowest_worker_that_is_there() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.enlisted, copy.clocks, copy.version = {"a", "c"}, {"a": 7, "c": 9}, 20
        (clock,) = (await server.asked("b", lambda ask: Enlist(ask, 1, 0, (0,)), Enlisted)).clocks
        assert clock == 7

    with_server(large(3), scene)


async def pushed(server: Server, worker: str, seq: int) -> None:
    values = torch.ones(3).numpy().tobytes()
    push = lambda ask: Push(ask, 1, seq, (0,), (0,), (1,), False, 0, False, 0)  # noqa: E731
    await server.asked(worker, push, Pushed, payload=values)


def test_a_worker_ends_when_a_range_that_it_has_read_goes_back() -> None:
    """As it does if it alone knew of the newer copy, and was not believed."""

    async def scene(server: Server) -> None:
        store = server.parts.store
        server.parts.tenure.settle([0])
        store.copies[0].clocks |= {"a": 0, "b": 0}
        client = Client(Channel(server.endpoints["b"], PARAMETER_SERVER), cast(Presence, Present()), store.keys, 1)
        for _ in range(2):
            assert (await client.pull(0)).updates == (5,)
        store.copies[0].updates = 4
        with pytest.raises(LostRange, match="gone back from update 5 to 4"):
            await client.pull(0)

    with_server(copy_of({}, set(), updates=5), scene)


def test_a_worker_that_holds_values_of_a_lost_history_is_sent_all() -> None:
    """A server comes back from an older checkpoint, of which one worker alone could tell that it is older, and takes as
    many updates, or more, as that worker holds."""

    def pulled(updates: int) -> None:
        async def scene(server: Server) -> None:
            tenure, store, present = server.parts.tenure, server.parts.store, Present()
            tenure.settle([0])
            channel = Channel(server.endpoints["b"], PARAMETER_SERVER)
            client = Client(channel, cast(Presence, present), store.keys, 1)
            await client.pull(0)
            old = torch.full((3000,), 3.0)
            store.copies[0] = Copy(old, {}, term=1, updates=3, clocks={"a": 0, "b": 0}, restored=True)
            present.present = present.now = view(2)
            surveyed(server, {"a": HONEST})
            await settled(server, "a")
            for at in range(updates):
                store.enter(Entry((0,), torch.eye(3000)[at], {}))
            assert torch.equal((await client.pull(0)).vector, store.copies[0].values)
            assert torch.equal((await client.pull(0)).vector, store.copies[0].values)
            server.parts.takeover.close()

        copy = copy_of({"a": 0, "b": 0}, set(), updates=5, size=3000)
        with_server(copy, scene, pulls=PullFilters())

    pulled(updates=2)
    pulled(updates=4)
