"""Virtual time: it jumps, it keeps order, it never waits, and a run is a function of its seed."""

import asyncio
import os
import threading
import time

import pytest
from company import Company
from simulated import no_complaints, printed_under_hash_seed, simulate  # noqa: F401
from tiers import soak

from samovar.sims.world.loop import Deadlock, VirtualLoop, run_virtual


def test_time_starts_at_zero_and_a_day_takes_no_time() -> None:
    async def main() -> tuple[float, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await asyncio.sleep(24 * 3600 * 365)
        return began, loop.time()

    began = time.monotonic()
    assert run_virtual(main()) == (0.0, 24 * 3600 * 365)
    assert time.monotonic() - began < 5


def test_callbacks_run_in_the_order_of_their_times_and_at_these_times() -> None:
    async def main() -> list[tuple[float, str]]:
        loop, seen = asyncio.get_running_loop(), []
        for when, what in ((3.0, "c"), (1.0, "a"), (2.5, "b")):
            loop.call_at(when, lambda what=what: seen.append((loop.time(), what)))
        loop.call_soon(seen.append, (0.0, "now"))
        await asyncio.sleep(4)
        return seen

    assert run_virtual(main()) == [(0.0, "now"), (1.0, "a"), (2.5, "b"), (3.0, "c")]


def test_callbacks_due_now_run_in_the_order_of_their_calls() -> None:
    async def main() -> list[int]:
        seen: list[int] = []
        for number in range(100):
            asyncio.get_running_loop().call_soon(seen.append, number)
        await asyncio.sleep(0)
        return seen

    assert run_virtual(main()) == list(range(100))


def test_time_never_runs_backwards_over_many_small_steps() -> None:
    async def main() -> list[float]:
        loop, times = asyncio.get_running_loop(), []
        for _ in range(10_000):
            await asyncio.sleep(0.1)
            times.append(loop.time())
        return times

    times = run_virtual(main())
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1000.0, abs=1e-6)


def test_work_for_a_thread_is_done_on_the_spot() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(None, threading.get_ident)
        assert future.done()
        assert await future == threading.get_ident()
        with pytest.raises(ZeroDivisionError):
            await loop.run_in_executor(None, lambda: 1 // 0)
        assert loop.time() == 0.0

    run_virtual(main())


def test_a_deadlock_is_told_and_not_waited_for() -> None:
    ended = []

    async def main() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    with pytest.raises(Deadlock):
        run_virtual(main())
    assert ended, "what was waiting is cancelled, so it can clean up"


@pytest.mark.parametrize("nap_s", [0.0, 1e-15], ids=["not at all", "for less than the clock shows"])
def test_tasks_that_run_for_ever_while_no_time_passes_are_told(nap_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samovar.sims.world.loop.PASSES_MAX", 1000)
    ended = []

    async def main() -> None:
        await asyncio.sleep(7)
        try:
            while True:  # noqa: ASYNC110  # this is the mistake
                await asyncio.sleep(nap_s)
        finally:
            ended.append(True)

    with pytest.raises(Deadlock, match="livelock: tasks run for ever at 7 s, and no time passes"):
        run_virtual(main())
    assert ended


def test_long_work_at_one_moment_is_no_livelock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("samovar.sims.world.loop.PASSES_MAX", 1000)

    async def main() -> float:
        for _ in range(5):
            for _ in range(900):
                await asyncio.sleep(0)
            await asyncio.sleep(1e-6)
        return asyncio.get_running_loop().time()

    assert run_virtual(main()) == pytest.approx(5e-6)


def test_tasks_left_behind_are_cancelled() -> None:
    cancelled = []

    async def forever() -> None:
        try:
            await asyncio.sleep(1e9)
        except asyncio.CancelledError:
            cancelled.append(asyncio.get_running_loop().time())
            raise

    async def main() -> None:
        main.task = asyncio.create_task(forever())  # type: ignore[attr-defined]
        await asyncio.sleep(1)

    run_virtual(main())
    assert cancelled == [1.0]


def test_a_virtual_loop_can_be_closed_and_another_starts_at_zero() -> None:
    first = VirtualLoop()
    first.run_until_complete(asyncio.sleep(5))
    first.close()
    assert run_virtual(asyncio.sleep(0, result="again")) == "again"


def digest_of(seed: int, link: str = "10mbit,40ms,10ms") -> str:
    async def main() -> str:
        company = Company(4, link=link, seed=seed)
        company.network.before[150] = company[2].crash
        await company.run()
        company.agree()
        assert company.crashed == {2}
        return company.network.digest

    return simulate(main())


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    assert digest_of(7) == digest_of(7)
    assert digest_of(7) != digest_of(8)


@soak
def test_a_run_does_not_depend_on_the_hash_seed() -> None:
    """Of whole seeds `test_sweep` shows it for each change."""
    code = "from test_virtual_loop import digest_of; print(digest_of(7))"
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = printed_under_hash_seed(hash_seed, code)
    assert told == digest_of(7) + "\n", "this process has another hash seed"
