"""The refusals of a run's task or settings by a peer, which are the run's own error before all peers are up."""

from __future__ import annotations

from collections.abc import Mapping

from ..settings.fields import SettingsError
from ..task.syntax import TaskError

REFUSALS: Mapping[str, type[ValueError]] = {"wrong task": TaskError, "wrong settings": SettingsError}
"""By the kind of the message in which a peer tells its launcher of the refusal, the error's type."""
