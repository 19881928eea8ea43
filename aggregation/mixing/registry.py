"""The topologies by name, and the syntax by which a user chooses one: ``ring``, ``regular:4``, ``small_world:4:0.1``,
``edges:0-1,1-2``. Adding one is one file, or one class, and one line here."""

from collections.abc import Callable, Mapping

from ..options import made_of, number, whole
from .capacity import Capacity
from .edge_list import TEXT_MAX, EdgeList
from .random_graphs import RandomRegular, SmallWorld
from .regular import Complete, Exponential, OnePeerExponential, Ring, Star, Torus, Wheel
from .slim_fly import SlimFly
from .topology import Topology

TOPOLOGIES: Mapping[str, tuple[Callable[..., Topology], int]] = {
    "ring": (Ring, 0),
    "wheel": (Wheel, 0),
    "torus": (Torus, 0),
    "regular": (lambda degree="4", seed="0": RandomRegular(whole(degree), whole(seed)), 2),
    "small_world": (lambda degree="4", rewired="0.1": SmallWorld(whole(degree), number(rewired)), 2),
    "star": (Star, 0),
    "complete": (Complete, 0),
    "exponential": (Exponential, 0),
    "one_peer_exponential": (OnePeerExponential, 0),
    "slim_fly": (SlimFly, 0),
    "capacity": (lambda degree="4", seed="0": Capacity(whole(degree), whole(seed)), 2),
    "edges": (lambda text="": EdgeList.parsed(text), 1),
}
"""Name -> a function that makes the topology from its options, which are texts, and the most options it takes."""
GIVEN_BY_NAME = tuple(name for name in TOPOLOGIES if name != "edges")
"""The names of the topologies that need no option."""


def parse_topology(text: str) -> Topology:
    """The topology a user asks for: a name of `TOPOLOGIES` with its options after colons. Raises ValueError, in one
    line, on anything else."""
    return made_of(text, TOPOLOGIES, "topology", TEXT_MAX)
