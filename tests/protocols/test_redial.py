"""When a peer that could not be called is called again."""

import asyncio

import pytest

from samovar.protocols.zeromq.redial import PAUSE_MAX_S, PAUSE_MIN_S, Redial
from samovar.sims.world.loop import run_virtual


def test_calls_are_made_ever_more_seldom_but_soon_when_hurried() -> None:
    async def main() -> None:
        clock = asyncio.get_running_loop().time
        calls: list[float] = []

        def call() -> None:
            calls.append(clock())
            redial.failed()

        redial = Redial(asyncio.get_running_loop(), call)
        redial.failed()
        await asyncio.sleep(1000)
        pauses = [after - before for before, after in zip([0.0, *calls], calls, strict=False)]
        assert pauses[:8] == pytest.approx([PAUSE_MIN_S * 2**n for n in range(8)])
        assert pauses[8:] == pytest.approx([PAUSE_MAX_S] * len(pauses[8:]))
        assert len(calls) > 30
        for _ in range(3):  # however often somebody is in a hurry, there is a pause
            count, now = len(calls), clock()
            for _ in range(10):
                redial.hurry()
            await asyncio.sleep(0.5)
            assert calls[count] - now <= PAUSE_MIN_S + 1e-9
            assert calls[count + 1] - calls[count] >= PAUSE_MIN_S - 1e-9
        redial.stop()
        await asyncio.sleep(1000)
        assert calls[-1] <= now + 0.5

    run_virtual(main())


def test_a_call_without_an_end_is_made_anew_and_a_call_under_way_is_left_alone() -> None:
    async def main() -> None:
        calls: list[float] = []
        redial = Redial(asyncio.get_running_loop(), lambda: calls.append(asyncio.get_running_loop().time()))
        for _ in range(100):
            redial.hurry()
            await asyncio.sleep(0.1)
        assert calls == []
        await asyncio.sleep(50)
        assert len(calls) == 4
        redial.succeeded()
        await asyncio.sleep(100)
        assert len(calls) == 4

    run_virtual(main())
