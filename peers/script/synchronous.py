"""Synchronous data parallel in a user's own loop: every backward ends with the mean gradient of all peers."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor, nn

from ...protocols.local_sgd.filling import Filling
from ..task.gradients import Gradients
from .loop_thread import Background


class Synchronous:
    """Synchronous averaging for one model. `average` takes gradients that are still being filled in and returns their
    mean [n], None when this peer is alone. `guarded`: a context in which an error ends this peer's part in the run."""

    def __init__(
        self,
        model: nn.Module,
        background: Background,
        average: Callable[[Filling], Coroutine[Any, Any, Tensor | None]],
        guarded: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self.gradients = Gradients(model, guarded=guarded, begin=self._begin, full=self._full, mean=self._mean)
        self._background, self._average = background, average
        self._filling: Filling | None = None
        self._averaging: Future[Tensor | None] | None = None

    def _begin(self) -> None:
        self._filling = self._background.call(self._begun())
        self._averaging = self._background.start(self._average(self._filling))

    async def _begun(self) -> Filling:
        return Filling(self.gradients.vector, len(self.gradients.buckets))

    def _full(self, bucket: int) -> None:
        filling = self._filling
        assert filling is not None
        self._background.soon(lambda: filling.fill(bucket))

    def _mean(self) -> Tensor | None:
        assert self._averaging is not None
        return self._background.wait(self._averaging)
