"""A peer that is behind goes on from what more than half of its neighbours have reached."""

from dataclasses import replace

import pytest
import torch

from samovar.protocols.gossip.messages import Published
from samovar.protocols.gossip.taken import NOTHING


@pytest.mark.parametrize(
    ("rounds", "reached"),
    [((), 0), ((7,), 7), ((0, 100), 100), ((99, 100, 2**62), 100), ((1, 2, 3, 2**62), 2), ((5, 5, 5, 5), 5)],
)
def test_a_neighbour_that_claims_more_rounds_than_the_others_moves_no_peer(
    rounds: tuple[int, ...], reached: int
) -> None:
    vectors = {f"p{at}": Published(round, round, torch.zeros(1)) for at, round in enumerate(rounds)}
    assert replace(NOTHING, vectors=vectors).reached == reached
