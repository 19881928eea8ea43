"""One server of the parameter server, whose workers are played by the test."""

import asyncio
import re
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conformance import eventually
from one_server import Question, Server, copy_of, view, with_server
from simulated import no_complaints  # noqa: F401

from samovar.aggregation.lbfgs import ORDER
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.presence import Presence
from samovar.protocols.members.view import View
from samovar.protocols.parameter_server.coordination import Measure, Measured, Obey, Obeyed, Portion, Take
from samovar.protocols.parameter_server.known import Known
from samovar.protocols.parameter_server.messages import (
    FOREVER,
    PARAMETER_SERVER,
    Applied,
    Apply,
    Copied,
    Enlist,
    Enlisted,
    Fetch,
    Holdings,
    Pull,
    Pulled,
    Push,
    Pushed,
    Settled,
    Survey,
)
from samovar.protocols.parameter_server.serving import Serving
from samovar.protocols.parameter_server.store import settled_at


def test_the_first_reads_wait_for_each_worker_to_take_part_once() -> None:
    """A worker that has come back during its read takes part anew only after the read."""

    async def back(server: Server) -> None:
        server.parts.tenure.settle([0])
        for worker in ("a", "b"):
            assert await server.asked(worker, lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled)

    async def never_there(server: Server) -> None:
        server.parts.tenure.settle([0])
        with pytest.raises(PeerLost, match="has not answered"):
            await server.asked("b", lambda ask: Pull(ask, 1, 0, (0,), (0,)), Pulled)

    with_server(copy_of({"a": 0, "b": 0}, {"b"}, updates=0), back)
    with_server(copy_of({"b": 0}, {"b"}, updates=0), never_there)


def test_a_server_that_is_slow_to_enter_forgets_no_worker_that_takes_part_meanwhile() -> None:
    """Its first view, and messages of it, come before the task that waits for that view goes on."""

    async def scene(server: Server) -> None:
        second = view(2)
        members = SimpleNamespace(on_view=[], lost=None, notify=lambda: None, view=second, me=second.members[0])

        async def enter(contact: str | None) -> bool:
            for on_view in members.on_view:
                on_view(second)
            server.parts.tenure.settle([0])
            enlisted = await server.asked("a", lambda ask: Enlist(ask, 2, 0, (0,)), Enlisted)
            assert enlisted.clocks == (0,)
            return False

        present = SimpleNamespace(enter=enter, late=False)
        clock = cast(Any, SimpleNamespace(before_s=0.0, start=lambda: None))
        serving = Serving(server.parts, cast(Any, members), cast(Any, present), clock, every=2)
        assert await serving.enter(None, 0) == "started"
        copy = server.parts.store.copies[0]
        assert copy.enlisted == {"a"}, "and no worker of the run before"
        assert copy.clocks == {"a": 0}
        serving.close()

    with_server(copy_of({"former": 7}, {"former"}, updates=3), scene)


@pytest.mark.parametrize(
    ("clocks", "enlisted", "first"),
    [
        ({"a": 28}, set(), 28),  # `a` may come back
        ({"a": FOREVER}, set(), 9),
        ({"a": 28, "c": 12}, {"c"}, 12),
        ({"a": 28, "c": 5}, {"c"}, 9),
    ],
)
def test_a_worker_that_takes_part_is_not_behind_the_others(
    clocks: dict[str, int], enlisted: set[str], first: int
) -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        enlisted = await server.asked("b", lambda ask: Enlist(ask, 1, 9, (0,)), Enlisted)
        assert enlisted.clocks == (first,)

    with_server(copy_of(clocks, enlisted, updates=30), scene)


def test_a_wrong_message_that_had_waited_is_a_fault_of_its_sender() -> None:
    async def scene(server: Server) -> None:
        wrong = [asyncio.create_task(server.asked("a", lambda ask: Survey(ask, 2), Holdings)) for _ in range(16)]
        right = asyncio.create_task(server.asked("b", lambda ask: Enlist(ask, 2, 0, (0,)), Enlisted))
        await eventually(lambda: len(held(server)) == 17)
        assert not server.endpoint.refused
        server.parts.tenure.begin(view(2))
        server.parts.tenure.settle([0])
        assert await right, "the messages of others that had waited are handled"
        assert "may not send in view 2" in server.endpoint.refused["a"]
        for task in wrong:
            with pytest.raises(PeerLost):
                await task
        with pytest.raises(PeerLost):  # it is cut off, as for 16 faults on arrival
            await server.asked("a", lambda ask: Enlist(ask, 2, 0, (0,)), Enlisted)

    with_server(copy_of({}, set(), updates=0), scene)


def held(server: Server) -> list[Any]:
    """The messages that wait for a later view or for a range."""
    return server.parts.tenure._held._held


ENLIST: Question = lambda ask: Enlist(ask, 1, 10**18, (0,))  # noqa: E731
PULL: Question = lambda ask: Pull(ask, 1, 0, (0,), (0,))  # noqa: E731
PUSH: Question = lambda ask: Push(ask, 1, 1, (0,), (0,), (0,), False, 0, False, 0)  # noqa: E731
APPLY: Question = lambda ask: Apply(ask, 1, (0,), (), (1,), (), (), False, False, ())  # noqa: E731
SURVEY: Question = lambda ask: Survey(ask, 1)  # noqa: E731
TAKE: Question = lambda ask: Take(ask, 1, 1, False)  # noqa: E731
MEASURE: Question = lambda ask: Measure(ask, 1, 0, (0,))  # noqa: E731
OBEY: Question = lambda ask: Obey(ask, 1, 0, (0,), (0.0,) * ORDER)  # noqa: E731
FETCH: Question = lambda ask: Fetch(ask, 1, 0, 0)  # noqa: E731
SETTLED: Question = lambda ask: Settled(1, (0,))  # noqa: E731
ANSWERS = (Pulled, Applied, Holdings, Copied, Pushed, Portion, Measured, Obeyed)


@pytest.mark.parametrize(
    ("sender", "question"),
    [
        *(("stranger", asked) for asked in (ENLIST, PULL, PUSH, APPLY, SURVEY, FETCH, SETTLED, TAKE, MEASURE, OBEY)),
        *(("a", asked) for asked in (APPLY, SURVEY, FETCH, SETTLED, MEASURE, OBEY)),
    ],
)
def test_a_message_is_taken_only_of_a_peer_whose_part_it_is_to_send_it(sender: str, question: Question) -> None:
    async def scene(server: Server) -> None:
        store = server.parts.store
        server.parts.tenure.settle([0])
        before = repr((store.copies[0], store.known))
        asking = asyncio.create_task(server.asked(sender, question, *ANSWERS))
        await eventually(lambda: sender in server.endpoint.refused)
        asking.cancel()
        assert re.search("may not send|is not the head", server.endpoint.refused[sender])
        assert repr((store.copies[0], store.known)) == before

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=1), scene)


def test_a_peer_that_is_in_no_view_any_more_tells_nothing_of_a_former_one() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.begin(view(2))
        Channel(server.endpoints["stranger"], PARAMETER_SERVER).post("server", Settled(1, (0,)))
        with pytest.raises(PeerLost, match="the view has changed"):
            await server.asked("stranger", SURVEY, Holdings)  # which came after it
        assert server.parts.store.known == [0]

    with_server(copy_of({}, set(), updates=0), scene)


def test_what_is_put_off_has_a_limit_for_each_peer_and_goes_with_it() -> None:
    async def scene(server: Server) -> None:
        def later(ask: int) -> Pull:
            return Pull(ask, 9, 0, (0,), (0,))

        asking = [asyncio.create_task(server.asked(who, later, Pulled)) for who in ("stranger", "a") for _ in range(70)]
        await eventually(lambda: {*server.endpoint.refused} == {"stranger", "a"})
        assert len(held(server)) == 2 * 64
        server.parts.tenure.begin(view(2))
        assert {envelope.sender for envelope, _ in held(server)} == {"a"}
        for task in asking:
            task.cancel()

    with_server(copy_of({}, set(), updates=0), scene)


def test_no_more_reads_of_a_worker_wait_than_it_may_have_open() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        refused = 0
        asking = [asyncio.create_task(server.asked("b", PULL, Pulled)) for _ in range(70)]
        for task in asyncio.as_completed(asking):
            with pytest.raises(PeerLost) as lost:
                await task
            refused += "earlier questions" in str(lost.value)
        assert refused == 6

    with_server(copy_of({"b": 0}, {"b"}, updates=0), scene)


def test_holdings_of_a_later_view_are_not_believed() -> None:
    async def scene(server: Server) -> None:
        for worker, standing in (("a", settled_at(2)), ("b", settled_at(1))):
            channel = Channel(server.endpoints[worker], PARAMETER_SERVER)
            told = partial(_tell, channel, standing)
            channel.on(Survey, told)
        wrong: list[tuple[str, str]] = []
        server.parts.takeover.on_wrong = lambda peer, why: wrong.append((peer, why))
        server.parts.takeover.begin()
        await eventually(lambda: bool(wrong))
        assert {peer for peer, _ in wrong} == {"a"}
        assert "later than this view" in wrong[0][1]
        server.parts.takeover.close()

    with_server(copy_of({}, set(), updates=0), scene)


def _tell(channel: Channel, standing: int, envelope: Envelope) -> None:
    channel.post("server", Holdings(envelope.message.ask, (0,), (0,), (standing,)))


def test_a_worker_tells_servers_alone_which_chains_it_knows() -> None:
    async def scene(server: Server) -> None:
        @dataclass
        class Present:
            present: View = field(default_factory=lambda: view(1))
            on_view: list[Any] = field(default_factory=list)

        Known(Channel(server.endpoints["b"], PARAMETER_SERVER), cast(Presence, Present()), 1)
        told = await Channel(server.endpoint, PARAMETER_SERVER).ask("b", SURVEY, answers=(Holdings,))
        assert told.message.knows == (0,)
        asking = Channel(server.endpoints["a"], PARAMETER_SERVER).ask("b", SURVEY, answers=(Holdings,), within_s=2.0)
        with pytest.raises(PeerLost):
            await asking
        assert "may not send in view 1" in server.endpoints["b"].refused["a"]

    with_server(copy_of({}, set(), updates=0), scene)
