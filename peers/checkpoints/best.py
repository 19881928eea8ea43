"""The best model of a run so far, in a file beside the checkpoints, which hold the latest models.

The peer that evaluates writes it when the headline metric is better than that in the file. Peers of one run folder
share the file, so another coordinator, or a resumed run, goes on from its metric. Where each peer evaluates its own
model, as in gossip, several write at once: each writes a file of its own, which takes the place of the shared one
under a lock, and only while it is the better one. The tensors have the names of a checkpoint's model, and the numbers
tell the metric, the value, the exchange, and the peer if it is that peer's own model.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .checkpoint import Snapshot
from .file import read_numbers


def best_path(folder: Path) -> Path:
    """The path of the file of the best model in a run folder, whether or not there is one."""
    return folder / "checkpoint" / "best.safetensors"


class Kept(NamedTuple):
    """The contents of a file of the best model: the headline metric's name and value, and the number of the exchange
    after which the model had it. `peer`: whose model it is; "": the peers had one model."""

    metric: str
    value: float
    version: int
    peer: str = ""


def kept_best(path: Path) -> Kept | None:
    """The metric, value and exchange in the file at `path`; None: there is no such file, it cannot be read, or it has
    no metric. The hash is not checked."""
    try:
        numbers = read_numbers(path)
        whose = str(numbers.get("peer", ""))  # older files lack it
        return Kept(str(numbers["metric"]), float(numbers["value"]), int(numbers["version"]), whose)
    except (OSError, ValueError, KeyError, TypeError):
        return None


class BestModel:
    """Writes the best model so far to `path`. The metric `headline` decides; `better(a, b)` says whether its value a is
    better than b. `keep` writes a snapshot to `own`, a path in the same folder that no other peer writes to, and raises
    CheckpointError."""

    def __init__(
        self,
        path: Path,
        headline: str,
        better: Callable[[float, float], bool],
        own: Path,
        keep: Callable[[Snapshot], None],
    ) -> None:
        self._path, self._headline, self._better, self._own, self._keep = path, headline, better, own, keep

    def improved(self, metrics: Mapping[str, float]) -> bool:
        """Whether a model with these `metrics` is to be written: its headline metric is finite, and is better than that
        in the file, or there is no file with this metric."""
        value, kept = metrics.get(self._headline, math.nan), kept_best(self._path)
        if not math.isfinite(value):
            return False
        return kept is None or kept.metric != self._headline or self._better(value, kept.value)

    def write(self, model: Snapshot, metrics: Mapping[str, float], version: int, peer: str = "") -> None:
        """Write the tensors of `model`, the model after exchange `version`, to `own`, and put that file in the place of
        the one at `path` if the model is still an improvement then (`improved`); else remove it. `metrics` must hold
        the headline; `peer`: whose model it is, "": that of all. Raises CheckpointError, OSError."""
        finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
        numbers: dict[str, Any] = {"metric": self._headline, "value": metrics[self._headline], "version": version}
        numbers |= {"peer": peer} if peer else {}
        try:
            self._keep(Snapshot(model.tensors, {**numbers, "metrics": finite}))
            with _locked(self._path.parent):
                if self.improved(metrics):
                    os.replace(self._own, self._path)
        finally:
            self._own.unlink(missing_ok=True)


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """A context in which no other process of this machine is, for the same folder. It is left within microseconds."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):  # a file system that has no locks
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
    finally:
        os.close(file)
