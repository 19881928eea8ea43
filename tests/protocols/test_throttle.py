"""A relay's throttle: what it delays is done in order, at its rate, whatever fails."""

import asyncio
from typing import Any

from samovar.protocols.relay.throttle import Throttle
from samovar.sims.world.loop import run_virtual


def test_what_fails_later_holds_up_nothing_behind_it() -> None:
    done, failed = list[tuple[str, float]](), list[Any]()

    async def main() -> None:
        loop, throttle = asyncio.get_running_loop(), Throttle(1000.0)
        loop.set_exception_handler(lambda loop, context: failed.append(context["exception"]))
        began = loop.time()

        def fails() -> None:
            raise OSError("a link ended")

        throttle.take(1000, lambda: done.append(("first", loop.time() - began)))
        throttle.take(1000, fails)
        throttle.take(1000, lambda: done.append(("last", loop.time() - began)))
        await asyncio.sleep(10)

    run_virtual(main(), seed=0)
    assert [name for name, _ in done] == ["first", "last"]
    assert done[1][1] > 1.5, "at the rate of 1,000 bytes a second"
    assert [type(one) for one in failed] == [OSError]
