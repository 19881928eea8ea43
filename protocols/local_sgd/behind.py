"""Overlap: a round is averaged in the background while the next local steps are taken.

Delayed averaging: Zhu et al., "Delayed gradient averaging" (NeurIPS 2021, arXiv 2105.07999), section 3, for models as
in local SGD; and the overlap of Douillard et al., "Streaming DiLoCo" (arXiv 2501.18512), section 2.3, with a delay of
one whole period. At peer i, with H local steps to a round:

    x_i <- H local steps from x_i;    b_i = x_i, contributed to round k
    meanwhile: H local steps from x_i
    x_i <- m_k + (x_i - b_i),         the mean m_k of the b_j, plus the progress of i since; then b_i = x_i ...

So the mean of all x_i is m_k plus the mean of all progress since. With an ``--overlap-share`` alpha the last line is
x_i <- alpha x_i + (1 - alpha) m_k, as in Streaming DiLoCo: this holds the peers closer together and forgets some of
their progress since. With fragments, either formula applies only to the fragment of round k. The mean is merged after
the last of these local steps, not when it arrives, so the same run gives the same bits on any link. During the last
round no local steps are taken: each peer waits for it and ends with its result.

Only the parameters, the first elements of the vector, are merged. Buffers stay this peer's own, because a variance plus
a difference of two others may be below 0.

Cost: a round takes max(local steps, averaging), and memory for one more model.
Failures: as without overlap. A peer that catches up adopts the fetched model as it is and continues from there: its
steps since its last contribution are discarded, and the others may wait for its next steps. The checkpoint of a peer
that is stopped during a round has its contribution to that round, and has its steps since only if the round is already
committed here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from ...aggregation.vector import Part
from ..meter import Meter
from ..work import Add, Begin, Blend, Steps, Update
from .growth import Growth
from .rounds import Outcome

Done = tuple[Outcome, int]
"""The outcome of a round, and the period (local steps) that it had."""


class Behind:
    """One peer's round that is averaged in the background while the peer takes local steps. `overlap_share`: the weight
    of the peer's own model at the merge; None: its progress is added to the mean. `parameters`: number of elements to
    merge, at the start of the vector, when the run begins; None: all."""

    def __init__(self, meter: Meter, growth: Growth, overlap_share: float | None, parameters: int | None) -> None:
        self._meter, self._growth, self._share, self._parameters = meter, growth, overlap_share, parameters
        self._meanwhile = Steps(0)
        self._averaging: asyncio.Task[Done] | None = None
        self.brought: Update | None = None
        """The update that this peer contributed to the round under way; None: no round is under way."""
        self.merges = False
        """Whether a round is over, and the replica is to merge its mean into its own model."""

    def begin(self, update: Update, meanwhile: Steps, averaging: Coroutine[Any, Any, Done]) -> None:
        """Start `averaging`, a round to which this peer contributes `update`, in the background. `meanwhile`: the local
        steps to take during it."""
        self.brought, self._meanwhile = update, meanwhile
        self._averaging = asyncio.create_task(averaging, name="average")

    def hide(self) -> Steps:
        """Returns the local steps to take now. From here on the meter counts the round's time as hidden."""
        self._meter.hide(True)
        return self._meanwhile

    async def end(self) -> Done:
        """Wait until the round is over, after the local steps that hid it; this time is not counted as hidden. Returns
        its outcome and period. The caller then calls `merge` or `drop`. Raises as the averaging does. To be called only
        while a round is under way (`brought`)."""
        self._meter.hide(False)
        assert self._averaging is not None
        return await self._averaging

    def drop(self) -> None:
        """Forget this peer's contribution without a merge, after `end`: the caller loads the round's model as it is."""
        self.brought = None

    def merge(self, done: Outcome) -> tuple[Update, Begin]:
        """Make the instruction by which the replica merges the round's outcome `done` into its own model, and set
        `merges`, which the caller sets back. Returns the update that this peer contributed, and that instruction. To be
        called once, after `end` or `give_up`."""
        update, self.brought, self.merges = self.brought, None, True
        assert update is not None
        whole, state = done.part, done.state
        parameters = self._growth.parameters(self._parameters, state)
        part = whole if parameters is None else Part(whole.start, min(whole.stop, parameters))
        if self._share is not None:
            return update, Blend(done.vector, self._share, part, state.grown)
        return update, Add(done.vector - self._growth.carry(update.vector, update.grown, state), part, state.grown)

    async def give_up(self) -> Done | None:
        """Cancel the round under way, and wait for that. Returns its outcome and period if this peer had committed it
        already; None otherwise, and where no round is under way or this peer caught up with it."""
        self._meter.hide(False)
        if self.brought is None or self._averaging is None:
            return None
        self._averaging.cancel()
        await asyncio.gather(self._averaging, return_exceptions=True)
        over = not self._averaging.cancelled() and self._averaging.exception() is None
        done = self._averaging.result() if over else None
        return None if done is None or done[0].caught_up else done

    def close(self) -> None:
        """Cancel the round under way, without waiting."""
        if self._averaging is not None:
            self._averaging.cancel()
