"""The graph of a gossip: which weights a mix has when some neighbours give nothing."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from samovar.aggregation.mixing.grid import Grid
from samovar.protocols.gossip.graph import OfLinks, OfTopology
from samovar.protocols.gossip.messages import Form, Given, Published
from samovar.protocols.gossip.questions import Question, checked
from samovar.protocols.link.envelope import Envelope
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


def came_from(peer: str, links: int) -> Published:
    """What comes by message from a neighbour that tells that so many peers take its vector."""
    given = Given(1, 1, 1, False, Form.WHOLE, None, b"", 0.0, 0.0, (), links, 0)
    _, told = checked(Envelope(peer, given, b"", 0), Question(1), None, encodes=False)
    return Published(1, 1, torch.zeros(1), told)


@pytest.mark.parametrize(("one", "other"), [(3, 5), (5, 3), (4, 4)])
def test_two_peers_with_other_numbers_of_links_weigh_each_other_alike(one: int, other: int) -> None:
    """Else a mix would not keep the mean of the models."""
    graph = OfLinks(Members([Member(f"p{at}", f"{at}", "", Attributes(), 1) for at in range(2)]), None)  # type: ignore[arg-type]
    at_one = graph.weights({}, one, {"other": came_from("other", other)})
    at_other = graph.weights({}, other, {"one": came_from("one", one)})
    assert at_one["other"] == at_other["one"] == 1 / (1 + max(one, other))
