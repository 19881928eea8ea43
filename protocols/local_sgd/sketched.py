"""The averager of a codec that sketches (`averagers`, family sketch)."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...aggregation.codecs.codec import Sketch, SketchCodec, SketchState, seed_of
from ...aggregation.codecs.error_feedback import ErrorFeedback
from ...aggregation.mean import Mean
from ...aggregation.vector import Layout, norm_of
from ..collectives.reducer import Reducer
from ..offload import off_loop
from ..transfer.chunks import AttemptId
from .averagers import Layouts, Owed, Remembering, brought_by, mean_of
from .encoded import change_of, tell_encoded
from .rounds import Contribution
from .state import fingerprint

_GAIN = 1e3
"""How many times larger a projection may be than the projected vector."""


class SketchAverager(Remembering):
    def __init__(self, reducer: Reducer, codec: SketchCodec, layout: Layouts, seed: int, owed: Owed | None) -> None:
        super().__init__(layout, owed, every=1)
        self._reducer, self._codec, self._seed = reducer, codec, seed
        self._state: SketchState = ()
        self._of: tuple[str, ...] = ()
        """The parameters in the layout of `_state` that were frozen when the run began."""
        self._next_state: SketchState = ()

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        nbytes, signals, names = anchor.nbytes, len(contribution.signals), contribution.grown
        trained = anchor.numel() - contribution.statistics
        layout = _first(self._layout(names), trained)
        # Newcomers do not have the old sketch state, and a layout that has grown is of other matrices.
        if self._begin(attempt, names) or self._of != names:
            self._state, self._of = self._codec.start(layout, seed_of(self._seed, attempt[0])), names
        self._next_state = self._state
        feedback = self._working_copy(anchor)
        corrected = await off_loop(nbytes, lambda: _corrected(feedback, contribution, anchor))
        seed = seed_of(self._seed, attempt[1])
        sketch = await off_loop(nbytes, lambda: self._codec.begin(corrected[:trained], layout, seed, self._state))
        agreed: Mean | None = None
        marks = []
        for stage in range(sketch.stages):
            brought = await off_loop(nbytes, partial(_projected, sketch, stage, contribution))
            total = await self._reducer.sum(brought, attempt, stage=stage, tail=signals + 1, gain=_GAIN)
            agreed, mark = await off_loop(
                nbytes, partial(_absorbed, self._reducer, sketch, stage, total, anchor, signals)
            )
            marks.append(mark)
            if agreed is None:
                return None, seed_of(marks)
        assert agreed is not None, "a sketch has a stage at least"
        exact = anchor[trained:]
        if contribution.statistics:
            brought = brought_by(contribution, contribution.vector[trained:])
            total = await self._reducer.sum(brought, attempt, stage=sketch.stages, tail=signals + 1)
            statistics = mean_of(self._reducer, total, anchor, signals)
            marks.append(fingerprint(total))
            if statistics is None:  # some member's weight here is another than in the sketch
                return None, seed_of(marks)
            exact = statistics.vector

        def sent() -> Tensor:
            return _whole(sketch.own(), corrected[trained:])

        def ended(agreed: Mean) -> tuple[Mean, SketchState]:
            if contribution.weight:
                feedback.keep(corrected, sent())
            change = sketch.result()
            moved = _whole(anchor[:trained] + change, exact)
            agreed = agreed._replace(vector=moved, norm=norm_of(change))
            self._reducer.check(agreed, anchor)
            return agreed, sketch.state()

        before = feedback.residual
        agreed, self._next_state = await off_loop(nbytes, partial(ended, agreed))
        self._next = (attempt[1], feedback.residual, names)
        tell_encoded(attempt, contribution, anchor, owed=before, sent=sent, left=feedback.residual)
        return agreed, seed_of(marks)

    def committed(self) -> None:
        super().committed()
        self._state = self._next_state


def _first(layout: Layout, size: int) -> Layout:
    """The layout of the first tensors, which have `size` elements together."""
    if size == layout.size:
        return layout
    return Layout.stack([(slot.name, slot.shape, slot.dtype) for slot in layout.slots if slot.stop <= size])


def _whole(parameters: Tensor, statistics: Tensor) -> Tensor:
    """The vector [n] of both parts; `parameters` itself, not a copy, if there are no `statistics`."""
    return torch.cat((parameters, statistics)) if statistics.numel() else parameters


def _corrected(feedback: ErrorFeedback, contribution: Contribution, anchor: Tensor) -> Tensor:
    """This peer's change (`change_of`), corrected by the error feedback so far; without weight zeros."""
    return feedback.correct(change_of(contribution, anchor)) if contribution.weight else torch.zeros_like(anchor)


def _projected(sketch: Sketch, stage: int, contribution: Contribution) -> Tensor:
    return brought_by(contribution, sketch.project(stage))


def _absorbed(
    reducer: Reducer, sketch: Sketch, stage: int, total: Tensor, anchor: Tensor, signals: int
) -> tuple[Mean | None, int]:
    """The agreed mean of a stage, and the sum's fingerprint."""
    mark, mean = fingerprint(total), mean_of(reducer, total, anchor, signals, gain=_GAIN)
    if mean is not None:
        sketch.absorb(stage, mean.vector)
    return mean, mark
