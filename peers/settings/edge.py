"""The settings of an edge peer, a small machine behind a slow connection: the settings for which `--edge` stands, and
the budget."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ...protocols.addresses import NOWHERE
from ...protocols.budget import Budget, Day
from ...protocols.link.congestion import CHUNK_BYTES_MIN
from ...protocols.link.flow import INBOUND_BYTES_MAX
from .fields import SettingsError
from .link_text import parse_rate, parse_size, rate_text

if TYPE_CHECKING:
    from .common import CommonSettings

ANYWHERE: Final = "tcp://*:0"
"""The address at which a peer listens if none is given: any free port of all interfaces."""
HELD_BYTES: Final = 4 << 20
"""The most bytes of arrived data that an edge peer holds before it uses them; with more, their senders have to wait."""
BUDGET_LEFT: Final = "budget_left_bytes"
"""The name, in a checkpoint, of the number of bytes that are left of the day."""
_DAY_BYTES_MIN: Final = 1_000_000
_MESSAGES_BYTES: Final = 512
"""The most bytes that a chunk of data takes besides its payload."""


def of_edge(given: Mapping[str, Any]) -> dict[str, Any]:
    """The `given` common settings, by name, for a peer of `samovar join`. If `edge` is among them and True, `threads`
    becomes 1 unless another number than 0 is given. Raises SettingsError when an address to listen at, other than
    `NOWHERE`, is given beside `edge`."""
    if given.get("edge") is not True:
        return {**given}
    if given.get("listen") not in (None, NOWHERE):
        raise SettingsError(f"must be {NOWHERE} with --edge: leave out one of the two", "listen")
    return {**given, "threads": given.get("threads") or 1}


def check_budget(settings: CommonSettings) -> None:
    """Raises SettingsError for a budget with which a peer cannot stay in a run: a rate by which the smallest chunk of
    data takes longer than a quarter of the patience, or less than 1 MB a day."""
    if settings.budget is not None:
        least_Bps = (CHUNK_BYTES_MIN + _MESSAGES_BYTES) / (settings.patience_s / 4)
        if parse_rate(settings.budget) < least_Bps:
            least = rate_text(float(8 * -(-least_Bps // 1000) * 125))
            raise SettingsError(
                f"must be at least {least} with a patience of {settings.patience_s:g} s, or others take it for lost "
                f"while it sends: allow it more, or raise --patience-s, got {settings.budget}",
                "budget",
            )
    if settings.budget_per_day is not None and parse_size(settings.budget_per_day) < _DAY_BYTES_MIN:
        raise SettingsError(f"must be at least 1MB, got {settings.budget_per_day}", "budget_per_day")


def begin_with(budget: Budget | None, saved: Mapping[str, Any]) -> None:
    """Set the day's remaining bytes of `budget` to those that this peer's former process has `saved` among the numbers
    of a checkpoint. Does nothing without a limit a day, or if none are saved. It replaces `budget.day`, so it must be
    called before anything else keeps that."""
    left_bytes = saved.get(BUDGET_LEFT)
    if budget is not None and budget.day is not None and isinstance(left_bytes, float):
        budget.day = Day(budget.day.bytes_a_day, left_bytes)


def budget_of(settings: CommonSettings) -> Budget | None:
    """The limits that the settings set to a peer: on bytes a second, on bytes a day, and, with `edge`, on the arrived
    data that it holds. None: they set none of these."""
    if not settings.edge and settings.budget is None and settings.budget_per_day is None:
        return None
    day = None if settings.budget_per_day is None else Day(parse_size(settings.budget_per_day))
    held_bytes = HELD_BYTES if settings.edge else INBOUND_BYTES_MAX
    return Budget(None if settings.budget is None else parse_rate(settings.budget), day, held_bytes)
