"""A peer's stay in a run without a common state, when the others go on without it."""

import asyncio

from company import Company
from simulated import no_complaints, simulate  # noqa: F401

from samovar.protocols.members.errors import Expelled
from samovar.protocols.members.joining import Entry
from samovar.protocols.members.presence import Presence


async def forever() -> None:
    await asyncio.Event().wait()


def test_work_pause_and_end_of_a_peer_that_was_given_up_end_without_an_error() -> None:
    async def main() -> None:
        walker = Company(1, founders=1).walkers[0]
        membership, endpoint = walker.membership, walker.endpoint
        await endpoint.open()
        membership.found()
        presence = Presence(membership, Entry(endpoint, membership), endpoint.interval_s)
        view = await presence.view()
        working = asyncio.create_task(presence.during(view, forever))
        finishing = asyncio.create_task(presence.finish())
        await asyncio.sleep(0)
        membership._roster.fail(Expelled("p2"))
        await working
        await presence.during(view, forever)
        await presence.pause()
        await finishing
        await presence.finish()
        assert presence.has_left(view)
        membership.close()
        endpoint.abort()

    simulate(main())
