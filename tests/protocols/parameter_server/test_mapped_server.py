"""One server of the parameter server in a run of map and reduce, whose workers are played by the test."""

import asyncio

import pytest
import torch
from conformance import eventually
from one_server import Question, Server, copy_of, with_server
from simulated import no_complaints  # noqa: F401

from samovar.protocols.link.link import PeerLost
from samovar.protocols.parameter_server.coordination import Portion, Take
from samovar.protocols.parameter_server.messages import COORDINATOR, Early, Enlist, Enlisted, NotTaken, Push, Pushed
from samovar.protocols.parameter_server.partitions import names_of
from samovar.protocols.parameter_server.store import Copy

PARTITIONS = names_of(2)
ENLIST: Question = lambda ask: Enlist(ask, 1, 10**18, (0,))  # noqa: E731
TAKE: Question = lambda ask: Take(ask, 1, 1, False)  # noqa: E731
WHOLE = torch.ones(3).numpy().tobytes()


def mapped(updates: int = 0) -> Copy:
    """A copy after so many updates, and as many orders or one less: the last one is under way."""
    clocks = dict.fromkeys(PARTITIONS, updates) | {COORDINATOR: max(1, updates)}
    return copy_of(clocks, {*clocks}, updates)


def test_a_worker_does_not_take_part_where_partitions_do() -> None:
    """Each update would wait for its pushes."""

    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        with pytest.raises(PeerLost, match="where partitions do"):
            await server.asked("a", ENLIST, Enlisted)
        assert server.parts.store.copies[0].enlisted == {*PARTITIONS, COORDINATOR}

    with_server(mapped(), scene, PARTITIONS)


@pytest.mark.parametrize(
    ("seq", "last", "of", "answer", "said"),
    [
        (1, False, 0, NotTaken, "counts for partition -1, of 2"),
        (1, False, 3, NotTaken, "counts for partition 2, of 2"),
        (1, True, 1, NotTaken, "it is the last one"),
        (3, False, 1, Early, ""),  # it would stand in the way of the other partition's push to step 2
    ],
)
def test_a_push_counts_for_a_partition_and_the_present_step(
    seq: int, last: bool, of: int, answer: type, said: str
) -> None:
    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])

        def push(ask: int) -> Push:
            return Push(ask, 1, seq, (0,), (0,), (1,), last, of, False, 0)

        got = await server.asked("a", push, answer, payload=WHOLE)
        assert said in getattr(got, "why", "")
        assert not server.parts.intake.has(0, PARTITIONS[0], 2)

    with_server(mapped(updates=1), scene, PARTITIONS)


def test_a_portion_goes_to_two_workers_and_is_not_given_out_once_it_is_pushed() -> None:
    async def scene(server: Server) -> None:
        async def taken(worker: str) -> int:
            portion: Portion = await server.asked(worker, TAKE, Portion)
            return portion.of

        server.parts.tenure.settle([0])
        assert [await taken("a"), await taken("b")] == [1, 2]
        assert [await taken("a"), await taken("a")] == [2, 0], "a backup of b's, and none twice"
        pushing = asyncio.create_task(
            server.asked("a", lambda ask: Push(ask, 1, 1, (0,), (0,), (0,), False, 1, False, 0), Pushed, payload=WHOLE)
        )
        await eventually(lambda: server.parts.intake.has(0, PARTITIONS[0], 1))
        assert await taken("b") == 0
        server.parts.more[1].begin()
        assert [await taken("b"), await taken("b")] == [2, 0], "in a new view the one that is left is given out anew"
        pushing.cancel()

    with_server(mapped(), scene, PARTITIONS)


def test_a_portion_that_other_ranges_may_lack_is_given_out_once_in_a_view() -> None:
    """This range has all pushes of step 1. The worker that made one may have gone before it came to the others."""

    async def scene(server: Server) -> None:
        async def taken(worker: str) -> int:
            portion: Portion = await server.asked(worker, TAKE, Portion)
            return portion.of

        server.parts.tenure.settle([0])
        for _ in range(2):
            assert [await taken(worker) for worker in ("a", "b", "a", "b")] == [1, 2, 0, 0]
            server.parts.more[1].begin()
        server.parts.store.copies[0].clocks[COORDINATOR] = 2
        assert await taken("a") == 0, "the step is over"

    with_server(mapped(updates=1), scene, PARTITIONS)


def test_a_worker_that_has_waited_long_gets_every_portion_that_it_has_not_mapped() -> None:
    async def scene(server: Server) -> None:
        async def taken(worker: str, *, again: bool) -> int:
            portion: Portion = await server.asked(worker, lambda ask: Take(ask, 1, 1, again), Portion)
            return portion.of

        server.parts.tenure.settle([0])
        assert [await taken(worker, again=False) for worker in ("a", "b", "a", "b")] == [1, 2, 0, 0]
        assert [await taken("b", again=True) for _ in range(3)] == [1, 0, 2], "one may not have come: all anew"

    with_server(mapped(updates=1), scene, PARTITIONS)
