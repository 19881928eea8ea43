"""The gradients of a script's model on their way to the other peers: each backward brings its gradient to the replica
while it computes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

from torch import Tensor, nn

from ...protocols.filling import Filling
from ..task.gradients import Gradients
from .loop_thread import Background
from .replica import ScriptReplica
from .reports import Reports


class GradientWorks:
    """Brings the gradients of `model` to the replica, as an update for each backward, and writes the mean over the
    peers back to them. `gradients`: the hooks on the model by which it does so, which run within the context `guarded`.
    `background`: runs the event loop; `reports`: has the batch's loss and weight; `wait`: waits for the replica's next
    work, which has the mean."""

    def __init__(
        self,
        model: nn.Module,
        background: Background,
        replica: ScriptReplica,
        reports: Reports,
        wait: Callable[[], None],
        guarded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._background, self._replica, self._reports, self._wait = background, replica, reports, wait
        self.gradients = Gradients(model, guarded=guarded, begin=self._begin, full=self._full, mean=self._mean)
        self._filling: Filling | None = None

    def _begin(self) -> None:
        async def begun() -> Filling:
            return Filling(self.gradients.vector, len(self.gradients.buckets))

        self._filling = self._background.call(begun())
        self._replica.bring_gradient(self._filling, self._reports.weight)

    def _full(self, bucket: int) -> None:
        assert self._filling is not None
        self._background.soon(partial(self._filling.fill, bucket))

    def _mean(self) -> Tensor | None:
        self._wait()
        return self._replica.take_mean()
