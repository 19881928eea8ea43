"""The conformance suite, over every transport, plain and lossy."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from conformance import World
from promises import PROMISES, TOO_SHORT_FOR_FAULTS
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
IN_SOAK = {(Curve, True), (Insecure, False), (SimulatedAnswered, False), (SimulatedRelayed, True)}


def worlds() -> Iterator[Any]:
    """Real sockets take seconds for a promise about silence: each kind has its other half of cases in the soak. So have
    peers that cannot be dialled, over sockets all of them: `test_relay.py` tries the gist of it."""
    for world, lossy in product((*WORLDS, *CALLED_BACK), (False, True)):
        long = (world, lossy) in IN_SOAK or (world in CALLED_BACK and issubclass(world, Sockets))
        case = soaked if long else pytest.param
        yield case(world, lossy, id=f"{world.__name__}-{'lossy' if lossy else 'plain'}")


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.__name__)
@pytest.mark.parametrize(("world", "lossy"), [*worlds()])
def test_every_endpoint_keeps_its_promises(world: type[World], lossy: bool, promise) -> None:
    world(lossy=lossy).try_promise(promise, long=promise not in TOO_SHORT_FOR_FAULTS)
