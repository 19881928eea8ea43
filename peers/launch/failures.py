"""How a peer process tells its launcher of the error that has ended it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from ..errors import EvaluationFailed, is_cut_off, is_plain, one_line
from ..settings.fields import SettingsError
from ..task.syntax import TaskError
from .control import Control, Orders
from .spec import log_path

REFUSALS: Mapping[str, type[ValueError]] = {"wrong task": TaskError, "wrong settings": SettingsError}
"""The errors by which a peer refuses the run's task or settings, by the kind of the message that tells of it. Before
all peers are up such an error is the run's own."""


def tell_failure(control: Control, orders: Orders, error: BaseException) -> None:
    """Send the launcher this peer's error, as one line. Its kind says whether all peers will fail with this error, this
    peer lost contact with peers that it needs, it refuses the task or the settings (`REFUSALS`), or none of these. The
    line names the log with the traceback if the error's text alone is not enough."""
    for_all = isinstance(error, EvaluationFailed)
    where = "" if is_plain(error) and not for_all else f"; see {log_path(Path(orders.folder), orders.name)}"
    kinds = (kind for kind, refusal in REFUSALS.items() if isinstance(error, refusal))
    kind = "error for all" if for_all else "cut off" if is_cut_off(error) else next(kinds, "error")
    control.tell(kind, f"{one_line(error)}{where}")
