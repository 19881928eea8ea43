"""The allreduce schedules by name. Adding one is one file and one line here."""

from collections.abc import Mapping

from .halving_doubling import HalvingDoubling
from .ring import Ring
from .schedule import Schedule

SCHEDULES: Mapping[str, Schedule] = {
    "ring": Ring(),
    "halving_doubling": HalvingDoubling(),
}
