"""The conformance suite, over every transport, plain and lossy."""

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import pytest
from conformance import World
from promises import (
    PROMISES,
    TOO_SHORT_FOR_FAULTS,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
    messages_arrive_exactly_once_and_in_order_on_each_lane,
)
from tiers import soaked
from worlds import (
    Curve,
    CurveAnswered,
    CurveRelayed,
    InProcess,
    Insecure,
    InsecureRelayed,
    ShapedInProcess,
    Simulated,
    SimulatedAnswered,
    SimulatedRelayed,
    Sockets,
)

WORLDS = (InProcess, ShapedInProcess, Simulated, Curve, Insecure)
CALLED_BACK = (SimulatedAnswered, SimulatedRelayed, CurveAnswered, CurveRelayed, InsecureRelayed)
IN_SOAK = {
    (InProcess, True),
    (ShapedInProcess, False),
    (Simulated, False),
    (Curve, True),
    (Insecure, False),
    (SimulatedAnswered, False),
    (SimulatedRelayed, True),
}
OF_LOSSY_SOCKETS = {
    messages_arrive_exactly_once_and_in_order_on_each_lane,
    a_restarted_peer_never_gets_what_was_meant_for_its_past_self,
}


def is_long(world: type[World], lossy: bool, promise: Callable[..., Any]) -> bool:
    """Real sockets take seconds for a promise about silence. For each change all promises are tried with Curve where
    nothing is lost, and two without Curve where frames are; losses in all other promises are simulated. So are peers
    that cannot be dialled: `test_relay.py` tries the gist of them over sockets."""
    if (world, lossy) == (Insecure, True):
        return promise not in OF_LOSSY_SOCKETS
    return (world, lossy) in IN_SOAK or (world in CALLED_BACK and issubclass(world, Sockets))


def cases() -> Iterator[Any]:
    for world, lossy, promise in product((*WORLDS, *CALLED_BACK), (False, True), PROMISES):
        case = soaked if is_long(world, lossy, promise) else pytest.param
        yield case(world, lossy, promise, id=f"{world.__name__}-{'lossy' if lossy else 'plain'}-{promise.__name__}")


@pytest.mark.parametrize(("world", "lossy", "promise"), [*cases()])
def test_every_endpoint_keeps_its_promises(world: type[World], lossy: bool, promise) -> None:
    world(lossy=lossy).try_promise(promise, long=promise not in TOO_SHORT_FOR_FAULTS)
