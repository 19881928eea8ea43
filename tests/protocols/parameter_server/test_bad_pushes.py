"""Pushes that cannot be taken: one clear error to the sender of each, values that stay, and others that go on."""

import asyncio
from typing import Any, cast

import pytest
import torch
from one_server import Present, Server, copy_of, with_server
from simulated import no_complaints  # noqa: F401
from torch import Tensor

from samovar.aggregation.rows import Rows
from samovar.protocols.channel import Channel
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.presence import Presence
from samovar.protocols.parameter_server.client import Client
from samovar.protocols.parameter_server.messages import (
    PARAMETER_SERVER,
    Early,
    NotTaken,
    Pull,
    Pulled,
    Push,
    Pushed,
)
from samovar.protocols.parameter_server.shares import Pushes
from samovar.protocols.parameter_server.store import Copy

ONES = torch.ones(3)


def held() -> Copy:
    return copy_of({"a": 0, "b": 0}, {"a"}, updates=1)


def before(server: Server) -> str:
    server.parts.tenure.settle([0])
    return repr(server.parts.store.copies)


async def pushed(
    server: Server, worker: str, values: Tensor, seq: int = 1, ranges: tuple[int, ...] = (0,), rows: int = 0
) -> Any:
    """The answer to a push of these values by `worker`."""
    push = lambda ask: Push(ask, 1, seq, ranges, (rows,) * len(ranges), (1,), False, 0, False, 0)  # noqa: E731
    return await server.asked(worker, push, Pushed, Early, NotTaken, payload=values.numpy().tobytes())


@pytest.mark.parametrize(
    ("values", "rows", "said"),
    [
        (torch.ones(2), 0, "it has 8 bytes for ranges of 12"),
        (torch.ones(4), 0, "it has 16 bytes for ranges of 12"),
        (ONES.double(), 0, "it has 24 bytes for ranges of 12"),
        (ONES, 2, "it has 12 bytes for elements of 8"),
        (ONES, 6, "it has other numbers of elements than its ranges can have"),
        (torch.tensor([1.0, float("nan"), 1.0]), 0, "it has numbers that are not finite"),
        (torch.tensor([1.0, float("-inf"), 1.0]), 0, "it has numbers that are not finite"),
        (ONES * 1e30, 0, "its norm in range 0 is 1.73e+30, beyond the 1e+06 of --norm-limit"),
        (ONES * 1e6, 0, "its norm in range 0 is 1.73e+06, beyond the 1e+06 of --norm-limit"),
    ],
)
def test_a_push_that_cannot_be_right_is_one_clear_error_and_changes_nothing(
    values: Tensor, rows: int, said: str
) -> None:
    async def scene(server: Server) -> None:
        copies = before(server)
        answer = await pushed(server, "a", values, rows=rows)
        assert answer == NotTaken(answer.ask, f"the push was not taken: {said}", lost=False)
        assert repr(server.parts.store.copies) == copies
        assert isinstance(await pushed(server, "a", ONES), Pushed), "its next one is taken"
        assert server.parts.store.copies[0].values.tolist() == [1.0, 1.0, 1.0]

    with_server(held(), scene)


def test_a_large_push_to_large_values_is_taken() -> None:
    async def scene(server: Server) -> None:
        server.parts.store.copies[0].values = ONES * 1e3
        before(server)
        assert isinstance(await pushed(server, "a", ONES * 1e8), Pushed)
        assert isinstance(await pushed(server, "a", ONES * 1e30, seq=2), NotTaken)

    with_server(held(), scene)


@pytest.mark.parametrize("ranges", [(1,), (0, 0), (1 << 40,)])
def test_a_push_to_ranges_that_there_are_not_is_a_fault_of_its_sender_and_changes_nothing(
    ranges: tuple[int, ...],
) -> None:
    async def scene(server: Server) -> None:
        copies = before(server)
        with pytest.raises(PeerLost, match="spoke of ranges that are not among the 1 there are"):
            await pushed(server, "a", torch.ones(3 * len(ranges)), ranges=ranges)
        assert repr(server.parts.store.copies) == copies

    with_server(held(), scene)


@pytest.mark.parametrize(
    ("push", "said"),
    [
        (Pushes(torch.ones(4), {}), r"the vector is torch.float32 of \(4,\), due is torch.float32 of \(3,\)"),
        (Pushes(ONES.double(), {}), r"the vector is torch.float64 of \(3,\), due is torch.float32 of \(3,\)"),
        (Pushes(ONES, {"words": Rows(torch.tensor([0]), torch.ones(1, 3))}), "there is no table 'words'"),
    ],
)
def test_a_push_of_another_shape_dtype_or_table_is_refused_where_it_is_made(push: Pushes, said: str) -> None:
    async def scene(server: Server) -> None:
        copies = before(server)
        channel = Channel(server.endpoints["a"], PARAMETER_SERVER)
        client = Client(channel, cast(Presence, Present()), server.parts.store.keys, 1)
        with pytest.raises(ValueError, match=said):
            client.push(1, push, (1,))
        await client.at_most(0)
        assert repr(server.parts.store.copies) == copies

    with_server(held(), scene)


def test_a_worker_that_pushes_without_end_holds_up_no_other_and_fills_no_memory() -> None:
    """It has 150 pushes under way all the time: good ones, ones out of turn, and ones that cannot be taken."""

    async def scene(server: Server) -> None:
        before(server)
        done, bad = [0], ONES * float("nan")

        async def flood(number: int) -> None:
            for turn in range(10**6):
                try:
                    await pushed(server, "a", bad if turn % 2 else ONES, seq=1 + (number + turn) % 999)
                except PeerLost:
                    await asyncio.sleep(0)
                done[0] += 1

        flooding = [asyncio.create_task(flood(number)) for number in range(150)]
        try:
            for seq in range(1, 9):
                assert isinstance(await pushed(server, "b", ONES, seq), Pushed)
                pull = lambda ask: Pull(ask, 1, 0, (0,), (0,))  # noqa: E731
                assert isinstance(await server.asked("b", pull, Pulled), Pulled)
                assert len(server.parts.intake._asked) <= 2 * 64
        finally:
            for one in flooding:
                one.cancel()
            await asyncio.wait(flooding)
        assert done[0] > 500
        assert server.parts.store.copies[0].clocks["b"] == 8

    with_server(copy_of({"a": 0, "b": 0}, {"b"}, updates=1), scene)
