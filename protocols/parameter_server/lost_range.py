"""Lost ranges: a worker finds, by the numbers in an answer, that all copies of a range (a slice of the model's values)
were lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..members.errors import MembershipError
from .messages import NotTaken

T = TypeVar("T")


class LostRange(MembershipError):
    """Raised when a worker cannot go on, because all copies of a range of the model's values are gone."""


def check(ranges: Sequence[int], before: Sequence[int], now: Sequence[int], what: str = "push") -> None:
    """Raises LostRange if the number of a range's last push, or of its updates (`what`), is `now` below the one known
    `before`: the range has gone back, because all its copies were lost."""
    for number, known, told in zip(ranges, before, now, strict=False):
        if told < known:
            gone = f"range {number} of the model has gone back from {what} {known} to {told}"
            raise LostRange(f"{gone}: its servers were lost with all copies; go on from the checkpoints")


def taken(message: T | NotTaken) -> T:
    """Returns `message` unless it is NotTaken: then raises LostRange if all copies of a range are lost, else
    ValueError, because the question was wrong."""
    if isinstance(message, NotTaken):
        raise LostRange(message.why) if message.lost else ValueError(message.why)
    return message
