"""Virtual time for tests: a run in it ends, leaves no task behind, and complains of nothing."""

import asyncio
import gc
import random
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from typing import Any

import pytest
import torch

from samovar.aggregation.vector import Layout
from samovar.protocols.endpoint import Endpoint
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.outbound import transport_of

PATIENCE_S = 4.0
LINK = "10mbit,40ms"

complaints: list[str] = []


def simulate(main: Coroutine[Any, Any, Any], *, within_s: float = 600.0) -> Any:
    """Run `main` in virtual time. A run that takes longer, or that leaves a task behind, fails."""

    async def watched() -> Any:
        def complain(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            complaints.append(f"{context.get('message')}: {context.get('exception')!r}")

        asyncio.get_running_loop().set_exception_handler(complain)
        try:
            async with asyncio.timeout(within_s):
                result = await main
        except TimeoutError:
            raise AssertionError(f"it hangs: nothing was decided within {within_s:g} virtual seconds") from None
        for _ in range(3):
            await asyncio.sleep(0)
        left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left, f"tasks were left behind: {left}"
        return result

    return run_virtual(watched())


@pytest.fixture(autouse=True)
def no_complaints() -> Iterator[None]:
    """No exception in a task that nobody looked at, and no task that was destroyed while it waited."""
    complaints.clear()
    yield
    gc.collect()
    gc.freeze()  # what outlives a test is not looked at after each of the next
    assert not complaints, complaints


def printed_under_hash_seed(hash_seed: str, code: str) -> str:
    """What `code` prints in a process of its own, which any warning ends."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={"PYTHONHASHSEED": hash_seed, "PYTHONPATH": ":".join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    ).stdout


def layout_of(size: int) -> Layout:
    return Layout.of({"w": torch.zeros(size)})


def endpoint_in(network: Network, name: str, seed: int = 0) -> Endpoint:
    return Endpoint(transport_of(network, name), patience_s=PATIENCE_S, rng=random.Random(f"{name} {seed}"))


def now() -> float:
    return asyncio.get_running_loop().time()
