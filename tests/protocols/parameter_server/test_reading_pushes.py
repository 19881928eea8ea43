"""Pushes that read: push and pull in one exchange."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from conformance import eventually
from one_server import Present, Server, copy_of, view, with_server
from simulated import no_complaints  # noqa: F401

from samovar.aggregation.filters.pulls import PullFilters
from samovar.aggregation.server.showing import SHOWN
from samovar.protocols.channel import Channel
from samovar.protocols.members.presence import Presence
from samovar.protocols.members.view import View
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.messages import PARAMETER_SERVER, NotTaken, Pulled, Push
from samovar.protocols.parameter_server.shares import Pushes


def push(server: Server, worker: str) -> asyncio.Task[Any]:
    """The answer to the first push of `worker`, which reads."""
    question = lambda ask: Push(ask, 1, 1, (0,), (0,), (0,), False, 0, True, 0)  # noqa: E731
    values = torch.ones(3).numpy().tobytes()
    return asyncio.create_task(server.asked(worker, question, Pulled, NotTaken, payload=values))


def client_of(server: Server, worker: str) -> Client:
    channel = Channel(server.endpoints[worker], PARAMETER_SERVER)
    return Client(channel, cast(Presence, Present()), server.parts.store.keys, 1)


def test_a_push_and_a_pull_are_one_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(server: Server) -> None:
        asked: list[object] = []
        asking = Channel.asking

        def counted(self: Channel, to: str, question: Callable[[int], object], *args: Any, **more: Any) -> Any:
            asked.append(question(1))
            return asking(self, to, question, *args, **more)

        monkeypatch.setattr(Channel, "asking", counted)
        server.parts.tenure.settle([0])
        clients = [client_of(server, worker) for worker in ("a", "b")]
        for number, client in enumerate(clients, 1):
            client.push(1, Pushes(torch.full((3,), float(number)), {}), (0,), reads=True)
        for client in clients:
            assert (await client.pull(1)).vector.tolist() == [1.5] * 3
            await client.at_most(0)
        assert [type(question) for question in asked] == [Push, Push]

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0), scene)


def test_workers_whose_links_differ_a_little_push_the_same_ranges_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes ranges apart that come in other groups than before, which costs it copies of all of them."""

    async def scene(server: Server) -> None:
        client, found = client_of(server, "a"), []
        for chunk_bytes in (4096, 4090, 4000, 3000):
            monkeypatch.setattr(server.endpoints["a"], "chunk_bytes", lambda to, this=chunk_bytes: this)
            groups = client._exchanges.batches("server", range(256), client._no_rows)
            found.append([len(group) for group in groups])
        assert found == [[64] * 4] * 3 + [[32] * 8]

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0, size=16 * 256), scene, ranges=256)


def test_what_a_push_reads_is_on_all_copies_before_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain has the pushes, and then other entries come: their values are not told before it has these as well."""

    async def scene(server: Server) -> None:
        waiting: list[Callable[[], None]] = []
        monkeypatch.setattr(server.parts.chains, "after", lambda number, told: waiting.append(told))
        server.parts.tenure.settle([0])
        answers = [push(server, worker) for worker in ("a", "b")]
        for _ in ("acknowledged", "read"):
            await eventually(lambda: len(waiting) == 2)
            assert not any(answer.done() for answer in answers)
            for told in [waiting.pop(), waiting.pop()]:
                told()
        assert [(await answer).clocks for answer in answers] == [(1,), (1,)]

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0), scene)


def test_a_read_of_a_push_waits_for_the_clocks_of_the_others() -> None:
    """The push itself was applied, with that of the other worker left out: the read still waits for it."""

    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        copy = server.parts.store.copies[0]
        copy.clocks["a"] = 1
        server.parts.chains.settled(0)
        late = push(server, "a")  # comes again, and is acknowledged at once
        await eventually(lambda: server.parts.reads.awaited() == {"b"})
        await push(server, "b")
        assert (await late).late == "b"
        assert copy.values.tolist() == [1, 1, 1], "it was not applied again"

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=1), scene)


@pytest.mark.parametrize("ranges", [1, 2])
def test_the_answer_of_a_sum_names_the_worker_whose_push_came_last_to_the_others_alone(ranges: int) -> None:
    """In two groups of ranges, of which one is like the other no more, as in one."""

    async def scene(server: Server) -> None:
        server.parts.tenure.settle(range(ranges))
        server.parts.store.copies[ranges - 1].updates += ranges - 1
        none = (0,) * ranges
        question = lambda ask: Push(ask, 1, 1, tuple(range(ranges)), none, none, False, 0, True, 0)  # noqa: E731
        asked = lambda worker: server.asked(worker, question, Pulled, payload=bytes(12))  # noqa: E731
        first = asyncio.create_task(asked("a"))
        await eventually(lambda: server.parts.intake.has(0, "a", 1))
        last = await asked("b")
        assert ((await first).late, last.late) == ("b", "")

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0), scene, ranges=ranges)


def test_a_push_for_a_partition_reads_nothing() -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        question = lambda ask: Push(ask, 1, 1, (0,), (0,), (0,), False, 1, True, 0)  # noqa: E731
        answer = await server.asked("a", question, NotTaken, payload=torch.ones(3).numpy().tobytes())
        assert "does not" in answer.why

    with_server(copy_of({}, set(), updates=0), scene, partitions=("one",))


def test_an_evaluation_has_the_exact_values_also_after_a_push_that_reads_what_is_shown() -> None:
    async def scene(server: Server) -> None:
        server.parts.store.copies[0].state[SHOWN] = torch.ones(3)
        server.parts.tenure.settle([0])
        clients = [client_of(server, worker) for worker in ("a", "b")]
        for client in clients:
            assert (await client.pull(0)).vector.tolist() == [1.0] * 3
            client.push(1, Pushes(torch.full((3,), 0.25), {}), (0,), reads=True)
        for client in clients:
            assert (await client.pull(1, exact=True)).vector.tolist() == [1.25] * 3
            assert (await client.pull(1)).vector.tolist() == [1.0] * 3, "what the push has read"

    copy = copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0)
    copy.values += 1.0
    with_server(copy, scene, pulls=PullFilters(0.5))


class Overtaken(Present):
    """The presence of a worker that has waited for the first view, and learns of the second one before it goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = None

    def has_left(self, view: View) -> bool:
        return view.generation != self.present.generation

    async def view(self) -> View:
        found = self.present
        if self.now is None:
            asyncio.get_running_loop().call_soon(self._change)
        return found

    def _change(self) -> None:
        self.present = self.now = view(2)
        for told in self.on_change:
            told()


def test_a_worker_asks_in_the_present_view_also_if_that_came_when_it_had_waited_for_another() -> None:
    async def scene(server: Server) -> None:
        channel, presence = Channel(server.endpoints["a"], PARAMETER_SERVER), Overtaken()
        client = Client(channel, cast(Presence, presence), server.parts.store.keys, 1)
        server.parts.tenure.begin(view(2))
        server.parts.tenure.settle([0])
        assert (await client.pull(0)).vector.tolist() == [0.0] * 3

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0), scene)
