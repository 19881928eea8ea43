"""The algorithms of the parameter server by name, and the syntax by which a user chooses one: ``sync``, ``backup:2``.
Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ....aggregation.options import made_of, number, whole
from .algorithm import Algorithm, MapReduce, Shared
from .downpour import Downpour
from .easgd import ElasticAveraging
from .hogwild import Hogwild
from .sandblaster import Sandblaster
from .softsync import SoftSync
from .staleness_aware import StalenessAware
from .statistical_query import query_of
from .sync import Sync

AnyAlgorithm = Algorithm | MapReduce | Shared


def _downpour(n_push: str = "1", n_fetch: str = "", warm_start: str = "0") -> Algorithm:
    return Downpour(whole(n_push), whole(n_fetch or n_push), whole(warm_start))


ALGORITHMS: Mapping[str, tuple[Callable[..., AnyAlgorithm], int]] = {
    "sync": (Sync, 0),
    "backup": (lambda workers="1": Sync(whole(workers)), 1),
    "downpour": (_downpour, 3),
    "staleness_aware": (StalenessAware, 0),
    "softsync": (lambda n="1": SoftSync(whole(n)), 1),
    "easgd": (lambda alpha="0.1", tau="4": ElasticAveraging(number(alpha), whole(tau)), 2),
    "hogwild": (lambda how="free", steps="16": Hogwild(how, whole(steps)), 2),
    "sandblaster": (lambda portions="10": Sandblaster(whole(portions)), 1),
    "statistical_query": (query_of, 2),
}
"""Name -> a function that makes the algorithm from its options, which are texts, and the most options it takes."""


def parse_algorithm(text: str) -> AnyAlgorithm:
    """The algorithm a user asks for: a name of `ALGORITHMS` with its options after colons. Raises ValueError, in one
    line, on anything else."""
    return made_of(text, ALGORITHMS, "algorithm")
