"""Links of one endpoint together: what they may ask of its memory."""

import random

from samovar.protocols.in_process import LocalHub, LocalTransport
from samovar.protocols.link.flow import INBOUND_BYTES_MAX
from samovar.protocols.link.lane import CREDIT_BYTES_MIN
from samovar.protocols.link.table import Links
from samovar.sims.world.loop import run_virtual


def test_however_many_peers_there_are_they_share_one_pool_of_credit() -> None:
    async def main() -> None:
        links = Links(
            LocalTransport(LocalHub(), "a"),
            random.Random(1),
            ended=lambda peer, why: None,
            patience_s=5.0,
        )
        alone = links._flow.share_bytes()
        for n in range(1, 1500):
            links.answer(str(n))
            granted = links._flow.share_bytes()
            assert CREDIT_BYTES_MIN <= granted <= alone
            assert n * granted <= max(INBOUND_BYTES_MAX, n * CREDIT_BYTES_MIN)
        assert alone > granted == CREDIT_BYTES_MIN

    run_virtual(main())
