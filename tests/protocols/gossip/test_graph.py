"""The graph of a gossip: which weights a mix has when some neighbours give nothing."""

from collections.abc import Sequence
from typing import Any

import pytest

from samovar.aggregation.mixing.grid import Grid
from samovar.protocols.gossip.graph import OfTopology
from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.view import Attributes, Member

GAVE: Any = object()


class Members:
    def __init__(self, members: Sequence[Member]) -> None:
        self.me, self.neighbours = members[0], Neighbours()
        self.neighbours.become(members[1:], lambda member: "")


def weights(came: int, *, in_groups: bool) -> tuple[float, list[float]]:
    """In a grid of 4 x 4 peers, the weight of a peer's own vector, and those of its neighbours when so many give
    something."""
    members: Any = Members([Member(f"p{at}", f"{at:02}", "", Attributes(data_shard=at), 1) for at in range(16)])
    graph = OfTopology(Grid(2), members, in_groups=in_groups)
    givers = graph.givers(1)
    assert len(givers) == 3
    found = graph.weights(givers, 3, dict.fromkeys(sorted(givers)[:came], GAVE))
    return 1.0 - sum(found.values()), list(found.values())


@pytest.mark.parametrize("came", [0, 1, 2, 3])
def test_the_present_peers_of_a_row_take_their_plain_mean(came: int) -> None:
    own, theirs = weights(came, in_groups=True)
    assert own == pytest.approx(1 / (1 + came))
    assert theirs == pytest.approx([1 / (1 + came)] * came)


def test_outside_groups_an_absent_neighbour_leaves_its_weight_to_the_peer_itself() -> None:
    own, theirs = weights(1, in_groups=False)
    assert (own, theirs) == (pytest.approx(0.75), pytest.approx([0.25]))
