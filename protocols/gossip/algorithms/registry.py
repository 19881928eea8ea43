"""The gossip algorithms by name, and the syntax by which a user chooses one: ``d_psgd``, ``epidemic:2``, ``moshpit:3``.
Adding one is one file and one line here."""

from collections.abc import Callable, Mapping

from ....aggregation.options import made_of, number, whole
from .ad_psgd import ADPSGD
from .algorithm import Algorithm
from .choco import Choco
from .d_psgd import DPSGD
from .epidemic import EpidemicLearning
from .gradient_tracking import GradientTracking
from .moshpit import Moshpit
from .push_sum import PushSum

ALGORITHMS: Mapping[str, tuple[Callable[..., Algorithm], int]] = {
    "d_psgd": (DPSGD, 0),
    "ad_psgd": (ADPSGD, 0),
    "choco": (lambda step=None: Choco(None if step is None else number(step)), 1),
    "epidemic": (lambda others="2": EpidemicLearning(whole(others)), 1),
    "gradient_tracking": (GradientTracking, 0),
    "moshpit": (lambda axes="2": Moshpit(whole(axes)), 1),
    "push_sum": (PushSum, 0),
}
"""Name -> a function that makes the algorithm from its options, which are texts, and the most options it takes."""


def parse_algorithm(text: str) -> Algorithm:
    """The algorithm a user asks for: a name of `ALGORITHMS` with its options after colons. Raises ValueError, in one
    line, on anything else."""
    return made_of(text, ALGORITHMS, "algorithm")
