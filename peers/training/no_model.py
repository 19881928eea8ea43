"""The replica of a peer that does not train, such as a server: it has no model, and its works have no local steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from ...protocols.conversation import Position
from ...protocols.work import Steps, Update, Work
from ..checkpoints.checkpoint import Snapshot
from ..records.records import ExchangeRecord
from .replica import Write
from .stop import Stop

T = TypeVar("T")


class Runs(Protocol):
    """An executor for numerical work, as `compute.ThreadCompute`."""

    async def run(self, work: Callable[[], T], *, steps: int = 0) -> T: ...


class NoModel:
    """A replica without a model, for a peer that does not train. It answers each work without local steps by an empty
    update, and refuses any other. Its checkpoints hold the conversation's position alone."""

    at = "no work of its own"
    steps_taken = steps_made = 0
    works_on = False

    def __init__(self, compute: Runs | None = None) -> None:
        """`compute`: writes its checkpoints; None: it is to write none."""
        self._compute = compute

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        """Do nothing: this replica has no data."""

    def note(self, record: ExchangeRecord) -> None:
        """Do nothing: this replica has no hooks."""

    async def do(self, work: Work, stop: Stop) -> Update | None:
        """An update with an empty vector [0], for a job of no steps; the begin of `work` is ignored. Raises ValueError
        for any other job."""
        if not isinstance(work.job, Steps) or work.job.count:
            raise ValueError(f"a peer without a model cannot do {type(work.job).__name__}")
        return Update(vector=torch.empty(0))

    async def write_model(self, vector: Tensor, write: Write) -> None:
        """Raises ValueError: there is no model to write."""
        raise ValueError("a peer without a model has none to write")

    async def end_round(self, position: Position) -> None:
        """Do nothing: this replica has no model that a begin could change."""

    async def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        if write is not None and self._compute is not None:
            await self._compute.run(lambda: write(Snapshot({}, {})))
