"""Ranges whose values are in one tensor: what is pushed to several ranges at once does to each what it does to it
alone, whichever ranges the messages of the workers have.
"""

import asyncio
from typing import Any

import pytest
import torch
from conformance import eventually
from one_server import Server, copy_of, with_server
from simulated import no_complaints  # noqa: F401

from samovar.aggregation.server.adagrad import Adagrad
from samovar.aggregation.server.adam import Adam
from samovar.aggregation.server.add import Add
from samovar.aggregation.server.function import ServerFunction
from samovar.aggregation.vector import parts
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.messages import FOREVER, Enlist, Enlisted, Pulled, Push
from samovar.protocols.parameter_server.store import Entry, Store
from samovar.protocols.parameter_server.wholes import tensors_of

SIZE, RANGES = 10, 3
EVERY = tuple(range(RANGES))


def store_with(function: ServerFunction) -> Store:
    store = Store(Keys(parts(SIZE, RANGES), SIZE, torch.float32), function)
    for number in EVERY:
        store.copies[number] = store.create(number, Model(torch.arange(float(SIZE)), {}))
    return store


def part(store: Store, vector: torch.Tensor, *ranges: int) -> torch.Tensor:
    return torch.cat([store.keys.values(number, Model(vector, {})) for number in ranges])


@pytest.mark.parametrize("function", [Add(), Adagrad(), Adam()], ids=lambda function: type(function).__name__)
def test_ranges_that_are_updated_at_once_become_what_each_becomes_alone(function: ServerFunction) -> None:
    together, alone, pushed = store_with(function), store_with(function), torch.linspace(-1, 2, SIZE)
    for ranges in (EVERY, EVERY, (0, 2), (1,), EVERY):
        together.enter(Entry(ranges, part(together, pushed, *ranges), {"a": 1}))
        for number in ranges:
            alone.enter(Entry((number,), part(alone, pushed, number), {"a": 1}))
        for number in EVERY:
            one, other = together.copies[number], alone.copies[number]
            assert torch.equal(one.values, other.values)
            assert one.state.keys() == other.state.keys()
            assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
            assert (one.version, one.updates, one.clocks) == (other.version, other.updates, other.clocks)
            assert one.is_like(other)


def test_values_that_were_updated_at_once_are_sent_without_a_copy() -> None:
    store = store_with(Add())
    store.enter(Entry(EVERY, torch.ones(SIZE), {}))
    (whole,) = tensors_of(EVERY, store.copies)
    assert whole.data_ptr() == store.copies[0].values.data_ptr()
    assert torch.equal(whole, torch.arange(float(SIZE)) + 1)
    assert [len(values) for values in tensors_of((0, 2), store.copies)] == [3, 4]


def test_no_range_keeps_the_memory_of_others_that_have_gone_on() -> None:
    store = store_with(Adagrad())
    store.enter(Entry(EVERY, torch.ones(SIZE), {}))
    store.enter(Entry((1,), torch.ones(3), {}))
    copies = [store.copies[number] for number in EVERY]
    held = [tensor for copy in copies for tensor in (copy.values, *copy.state.values())]
    assert [tensor.untyped_storage().nbytes() for tensor in held] == [tensor.nbytes for tensor in held]
    assert torch.equal(torch.cat(tensors_of(EVERY, store.copies)), torch.cat([copy.values for copy in copies]))


def push(server: Server, worker: str, value: float, *ranges: int) -> asyncio.Task[Any]:
    """The answer to the first push of `worker`, to these ranges, which reads."""
    size = sum(server.parts.store.keys.size(number) for number in ranges)
    zeros = (0,) * len(ranges)
    question = lambda ask: Push(ask, 1, 1, ranges, zeros, zeros, False, 0, True, 0)  # noqa: E731
    values = torch.full((size,), value).numpy().tobytes()
    return asyncio.create_task(server.asked(worker, question, Pulled, payload=values))


def values_of(server: Server) -> list[list[float]]:
    return [server.parts.store.copies[number].values.tolist() for number in EVERY]


def settle(server: Server) -> None:
    server.parts.tenure.settle(EVERY)
    for number in EVERY:
        server.parts.chains.settled(number)


@pytest.mark.parametrize("messages", [[(0, 1, 2)], [(1,), (0, 2)], [(0, 1), (2,)], [(2,), (1,), (0,)]])
def test_a_step_is_the_mean_of_its_pushes_whichever_ranges_their_messages_have(messages: list[tuple[int, ...]]) -> None:
    async def scene(server: Server) -> None:
        settle(server)
        first = push(server, "a", 2.0, *EVERY)
        await eventually(lambda: server.parts.intake.has(0, "a", 1))
        others = [push(server, "b", 4.0, *ranges) for ranges in messages]
        assert (await first).clocks == (1, 1, 1)
        assert [(await other).updates for other in others] == [(1,) * len(ranges) for ranges in messages]
        assert values_of(server) == [[3.0] * 3, [3.0] * 3, [3.0] * 4]

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0, size=SIZE), scene, ranges=RANGES)


def test_a_worker_that_ends_in_one_range_is_waited_for_in_the_others() -> None:
    async def scene(server: Server) -> None:
        settle(server)
        first = push(server, "a", 2.0, *EVERY)
        await eventually(lambda: server.parts.intake.has(0, "a", 1))
        await server.asked("b", lambda ask: Enlist(ask, 1, FOREVER, (1,)), Enlisted)
        await eventually(lambda: server.parts.store.copies[1].updates == 1)
        assert values_of(server) == [[0.0] * 3, [2.0] * 3, [0.0] * 4]
        assert not first.done()
        await push(server, "b", 4.0, 0, 2)
        assert (await first).updates == (1, 1, 1)
        assert values_of(server) == [[3.0] * 3, [2.0] * 3, [3.0] * 4]

    with_server(copy_of({"a": 0, "b": 0}, {"a", "b"}, updates=0, size=SIZE), scene, ranges=RANGES)
