"""Averagers compute the mean of a round, from the vectors as they are or from a codec's encoding of their changes.

    plain    sum of w_i x_i                                       an allreduce
    hop      sum of w_i (x_i - x), encoded anew at each hop       an allreduce
    gather   each peer's own encoding of w_i (x_i - x + e_i)      an all-gather, summed in rank order
    sketch   the means of a codec's projections, by stage         an allreduce for each stage

x is the model that all peers agreed on in the last round: only the change since then loses precision in the encoding.
e_i is the compression residual of peer i (error feedback); it is dropped when the members change. Weights and signals
(`Contribution.signals`) are not encoded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...aggregation.codecs.codec import Codec, GatherCodec, HopCodec, Sketch, SketchCodec, SketchState, seed_of
from ...aggregation.codecs.error_feedback import ErrorFeedback
from ...aggregation.growth import carried
from ...aggregation.mean import Mean, combine, contribute
from ...aggregation.schedules.schedule import Op
from ...aggregation.vector import Layout, norm_of
from ..collectives.reducer import Reducer
from ..link.link import PeerLost
from ..offload import off_loop
from ..transfer.chunks import AttemptId
from .encoded import tell_encoded
from .rounds import Contribution
from .state import fingerprint

Owed = tuple[int, Tensor, tuple[str, ...]]
"""A peer's compression residual: the last round that it includes, the residual [n], and the names of the parameters in
it that were frozen when the run began."""
Layouts = Callable[[tuple[str, ...]], Layout]
"""Returns the layout of the model with these frozen parameters unfrozen."""
_GAIN = 1e3
"""How many times larger a projection may be than the projected vector."""


class Averager(Protocol):
    """One peer's side of computing the mean of each round. State that it keeps between rounds, such as a residual,
    changes only by `committed`, so an attempt that fails leaves no trace."""

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        """The weighted mean of all members' vectors [n], the same bits on each member, and the fingerprint of their
        sum; 0 where that lies in memory that all share. The mean is None when no weight is above 0. `anchor` [n]: the
        model that all had before their local steps.

        Raises PeerLost; BadSum when the mean cannot be right; and ValueError when this peer's contribution is not
        finite.
        """
        ...

    def committed(self) -> None:
        """Keep the new state: the mean that `mean` returned last was committed."""
        ...

    @property
    def owed(self) -> Owed | None:
        """This peer's compression residual after the committed rounds; None: there is none."""
        ...


def averager_for(
    codec: Codec | None, reducer: Reducer, layout: Layouts, seed: int, owed: Owed | None = None, every: int = 1
) -> Averager:
    """The averager for `codec`; None: no codec. `layout` returns the layout of the whole model with given parameters
    unfrozen. `seed`: the same on all peers of the run. `owed`: the residual of a resumed run. `every`: number of rounds
    from one call to the next; 1: it is called in each round, with whole models."""
    if codec is None:
        return PlainAverager(reducer)
    if codec.family == "hop":
        return HopAverager(reducer, codec)
    if codec.family == "gather":
        return GatherAverager(reducer, codec, layout, owed, every)
    return SketchAverager(reducer, codec, layout, seed, owed)


def brought_by(contribution: Contribution, vector: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The message [n + signals + 1] of a contribution whose vector is replaced by `vector` [n]: vector and signals
    times the weight, then the weight. `out` is filled and returned in place of a new tensor. With a weight of 0 the
    message is zeros. Raises ValueError when any of its elements is not finite."""
    message = contribute(vector, contribution.weight, contribution.signals, out=out)
    contribution.check(message)
    return message


def mean_of(reducer: Reducer, total: Tensor, anchor: Tensor, signals: int, *, gain: float = 1.0) -> Mean | None:
    """The mean of `total` [n + signals + 1], the sum of the members' messages, with so many `signals`. None: the summed
    weight is 0. `anchor`, `gain`: as for `Reducer.check`. Raises BadSum when the mean cannot be right."""
    if total[-1].item() == 0:
        return None
    mean = combine(total, signals)
    reducer.check(mean, anchor, gain)
    return mean


def _moved(reducer: Reducer, total: Tensor, anchor: Tensor, signals: int) -> tuple[Mean | None, int]:
    """The mean of a sum of changes, and the sum's fingerprint."""
    mark, mean = fingerprint(total), mean_of(reducer, total, anchor, signals)
    return None if mean is None else mean._replace(vector=anchor + mean.vector), mark


class PlainAverager:
    owed: Owed | None = None

    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        nbytes, signals = anchor.nbytes, len(contribution.signals)
        slot = await self._reducer.buffer(anchor.numel() + signals + 1, anchor.dtype, attempt)
        brought = await off_loop(nbytes, lambda: brought_by(contribution, contribution.vector, out=slot))
        total = await self._reducer.sum(brought, attempt, tail=signals + 1)
        # In place all peers read the same memory, so a fingerprint is not needed.
        mark = 0 if self._reducer.in_place else await off_loop(nbytes, lambda: fingerprint(total))
        return await off_loop(nbytes, lambda: mean_of(self._reducer, total, anchor, signals)), mark

    def committed(self) -> None: ...


class HopAverager:
    owed: Owed | None = None

    def __init__(self, reducer: Reducer, codec: HopCodec) -> None:
        self._reducer, self._codec = reducer, codec

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        nbytes, signals = anchor.nbytes, len(contribution.signals)
        brought = await off_loop(nbytes, lambda: brought_by(contribution, contribution.vector - anchor))
        total = await self._reducer.sum(brought, attempt, codec=self._codec, tail=signals + 1)
        return await off_loop(nbytes, lambda: _moved(self._reducer, total, anchor, signals))

    def committed(self) -> None: ...


class _Remembering:
    """Keeps the compression residual of all committed rounds until the members change. `owed`: the residual restored
    from a checkpoint; it is valid only if this peer contributes to the very next round, otherwise it is dropped. Where
    the vector has grown since, the residual is 0 for the new elements; that of a fragment is dropped."""

    def __init__(self, layout: Layouts, owed: Owed | None, every: int) -> None:
        self.owed, self._layout, self._every = owed, layout, every
        self._next = owed
        """The residual that holds if the last mean is committed."""
        self._generation = 0

    def _begin(self, attempt: AttemptId, names: tuple[str, ...]) -> bool:
        """Drop the residual of an attempt that was not committed, and the committed one when the members have changed
        or a round is missing. `names`: the parameters in this attempt that were frozen when the run began. Returns
        whether the members have changed."""
        changed, first = attempt[0] != self._generation, self._generation == 0
        if self.owed is not None and (self.owed[0] + self._every != attempt[1] or (changed and not first)):
            self.owed = None
        owed = self.owed
        if owed is not None and owed[2] != names:
            owed = None if self._every > 1 else (owed[0], self._grown(owed, names), names)
        self._next = None if owed is None else (attempt[1], *owed[1:])
        self._generation = attempt[0]
        return changed

    def _grown(self, owed: Owed, names: tuple[str, ...]) -> Tensor:
        return carried(owed[1], self._layout(owed[2]), self._layout(names))

    def _working_copy(self, anchor: Tensor) -> ErrorFeedback:
        """A copy of the residual, for an attempt that is not committed yet."""
        return ErrorFeedback.of(anchor) if self._next is None else ErrorFeedback(self._next[1])

    def committed(self) -> None:
        self.owed = self._next


class GatherAverager(_Remembering):
    def __init__(self, reducer: Reducer, codec: GatherCodec, layout: Layouts, owed: Owed | None, every: int) -> None:
        super().__init__(layout, owed, every)
        self._reducer, self._codec = reducer, codec

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        self._begin(attempt, contribution.grown)
        owed = self._working_copy(anchor).residual
        brought, feedback = await off_loop(anchor.nbytes, lambda: self._brought(contribution, anchor, attempt))
        self._next = (attempt[1], feedback.residual, contribution.grown)
        sent = partial(self._codec.decode, brought[: self._codec.encoded_bytes(len(anchor))], len(anchor), anchor.dtype)
        tell_encoded(attempt, contribution, anchor, owed=owed, sent=sent, left=feedback.residual)
        payloads = await self._reducer.gather(brought, attempt)
        return await off_loop(anchor.nbytes, lambda: self._combined(payloads, anchor, len(contribution.signals)))

    def _brought(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Tensor, ErrorFeedback]:
        """The encoded change, then signals and weight as float64; and the error feedback after it."""
        weight, feedback = contribution.weight, self._working_copy(anchor)
        if weight == 0:
            coded = torch.zeros(self._codec.encoded_bytes(anchor.numel()), dtype=torch.uint8)
        else:
            corrected = feedback.correct(contribution.vector - anchor)
            brought_by(contribution, corrected[:0])  # checks signals and weight; encoding checks the vector
            coded = self._codec.encode(corrected, seed_of(attempt, self._reducer.group.rank))
            feedback.keep(corrected, self._codec.decode(coded, anchor.numel(), anchor.dtype))
        tail = (*contribution.signals, weight) if weight else (0.0,) * (len(contribution.signals) + 1)
        return torch.cat((coded, torch.tensor(tail, dtype=torch.float64).view(torch.uint8))), feedback

    def _combined(
        self, payloads: Sequence[tuple[str, Tensor]], anchor: Tensor, signals: int
    ) -> tuple[Mean | None, int]:
        total = torch.zeros(anchor.numel() + signals + 1, dtype=anchor.dtype)
        for sender, payload in payloads:
            coded, tail = payload[: -8 * (signals + 1)], payload[-8 * (signals + 1) :]
            *told, weight = np.frombuffer(bytes(tail.numpy()), np.float64).tolist()
            if weight == 0:
                continue
            try:
                message = contribute(self._codec.decode(coded, anchor.numel(), anchor.dtype), weight, told)
            except ValueError as error:
                raise PeerLost(sender, f"it sent what {self._codec.name} does not decode: {error}") from None
            if self._reducer.guard is not None:
                self._reducer.guard.check(sender, message.numpy(), Op.ADD, signals + 1)
            total += message
        return _moved(self._reducer, total, anchor, signals)


class SketchAverager(_Remembering):
    def __init__(self, reducer: Reducer, codec: SketchCodec, layout: Layouts, seed: int, owed: Owed | None) -> None:
        super().__init__(layout, owed, every=1)
        self._reducer, self._codec, self._seed = reducer, codec, seed
        self._state: SketchState = ()
        self._of: tuple[str, ...] = ()
        """The parameters in the layout of `_state` that were frozen when the run began."""
        self._next_state: SketchState = ()

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        nbytes, signals, names = anchor.nbytes, len(contribution.signals), contribution.grown
        # Newcomers do not have the old sketch state, and a layout that has grown is of other matrices.
        if self._begin(attempt, names) or self._of != names:
            self._state, self._of = self._codec.start(self._layout(names), seed_of(self._seed, attempt[0])), names
        self._next_state = self._state
        feedback, corrected, sketch = await off_loop(nbytes, lambda: self._begun(contribution, anchor, attempt))
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

        def ended(agreed: Mean) -> tuple[Mean, SketchState]:
            if contribution.weight:
                feedback.keep(corrected, sketch.own())
            change = sketch.result()
            agreed = agreed._replace(vector=anchor + change, norm=norm_of(change))
            self._reducer.check(agreed, anchor)
            return agreed, sketch.state()

        before = feedback.residual
        agreed, self._next_state = await off_loop(nbytes, partial(ended, agreed))
        self._next = (attempt[1], feedback.residual, names)
        tell_encoded(attempt, contribution, anchor, owed=before, sent=sketch.own, left=feedback.residual)
        return agreed, seed_of(marks)

    def _begun(
        self, contribution: Contribution, anchor: Tensor, attempt: AttemptId
    ) -> tuple[ErrorFeedback, Tensor, Sketch]:
        """The error feedback so far, this peer's change corrected by it, and the sketch of the corrected change."""
        feedback = self._working_copy(anchor)
        corrected = feedback.correct(contribution.vector - anchor) if contribution.weight else torch.zeros_like(anchor)
        return (
            feedback,
            corrected,
            self._codec.begin(
                corrected, self._layout(contribution.grown), seed_of(self._seed, attempt[1]), self._state
            ),
        )

    def committed(self) -> None:
        super().committed()
        self._state = self._next_state


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
