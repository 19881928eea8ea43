"""The allreduce schedules by name. Adding one is one file and one line here."""

from collections.abc import Mapping

from .double_tree import DoubleTree
from .halving_doubling import HalvingDoubling
from .hierarchical import Hierarchical
from .naive import Naive
from .ring import Ring
from .schedule import Schedule
from .sharded import Sharded

SCHEDULES: Mapping[str, Schedule] = {
    "ring": Ring(),
    "halving_doubling": HalvingDoubling(),
    "naive": Naive(),
    "sharded": Sharded(),
    "double_tree": DoubleTree(),
    "hierarchical": Hierarchical(),
}
