"""How the mean of a round comes about: from the vectors as they are, or from what a codec makes of their changes.

    plain    sum of w_i x_i                                       an allreduce
    hop      sum of w_i (x_i - x), encoded anew at each hop       an allreduce
    gather   everybody's own encoding of w_i (x_i - x + e_i)      each to all, summed in rank order
    sketch   the means of what a codec projects, stage by stage   an allreduce for each stage

x is the model that all have had since the last round, so that what is lost is a part of a change; e_i is what the codec
left out of peer i's changes before (error feedback), which is forgotten when the members change. Weights and signals go
uncoded. Signals: mean loss, seconds, learning rate.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ...aggregation.codecs.codec import Codec, GatherCodec, HopCodec, SketchCodec
from ...aggregation.codecs.error_feedback import ErrorFeedback
from ...aggregation.mean import Mean, combine, contribute
from ...aggregation.vector import Layout
from ..delivery.link import PeerLost
from ..off_loop import off_loop
from ..rounds import Contribution, Key
from ..state import fingerprint
from .reducer import Reducer

SIGNALS = 3


class Averager(Protocol):
    """One peer's way to the mean. What it remembers from round to round changes only by `committed`."""

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        """The weighted mean of all members' vectors, the same bits on each, and its mark, which tells different ones
        apart; no mean when nobody's weight is above 0. `anchor`: the model that all had before their local steps.

        Raises PeerLost, and ValueError when the mean is not finite.
        """
        ...

    def committed(self) -> None:
        """The last mean is what all go on from."""
        ...


def averager_for(codec: Codec | None, reducer: Reducer, layout: Layout, seed: int) -> Averager:
    """The averager that suits `codec`. `seed`: the same on all peers of the run."""
    if codec is None:
        return PlainAverager(reducer)
    if codec.family == "hop":
        return HopAverager(reducer, codec)
    if codec.family == "gather":
        return GatherAverager(reducer, codec)
    return SketchAverager(reducer, codec, layout, seed)


def _signals(contribution: Contribution) -> tuple[float, float, float]:
    return contribution.loss, contribution.elapsed_s, contribution.learning_rate


def _seed(*what: object) -> int:
    return int.from_bytes(hashlib.blake2b(repr(what).encode(), digest_size=7).digest(), "big")


class PlainAverager:
    def __init__(self, reducer: Reducer) -> None:
        self._reducer = reducer

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        weight, signals, nbytes = contribution.weight, _signals(contribution), anchor.nbytes
        slot = await self._reducer.buffer(anchor.numel() + SIGNALS + 1, anchor.dtype, key)
        brought = await off_loop(nbytes, lambda: contribute(contribution.vector, weight, signals, out=slot))
        total = await self._reducer.sum(brought, key)
        # In place all read the very same result.
        mark = 0 if self._reducer.in_place else await off_loop(nbytes, lambda: fingerprint(total))
        if total[-1] == 0:
            return None, mark
        return await off_loop(nbytes, lambda: combine(total, SIGNALS)), mark

    def committed(self) -> None: ...


class HopAverager:
    def __init__(self, reducer: Reducer, codec: HopCodec) -> None:
        self._reducer, self._codec = reducer, codec

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        weight, signals, nbytes = contribution.weight, _signals(contribution), anchor.nbytes
        brought = await off_loop(nbytes, lambda: contribute(contribution.vector - anchor, weight, signals))
        total = await self._reducer.sum(brought, key, codec=self._codec, tail=SIGNALS + 1)
        return await off_loop(nbytes, lambda: _moved(total, anchor))

    def committed(self) -> None: ...


def _moved(total: Tensor, anchor: Tensor) -> tuple[Mean | None, int]:
    """The mean behind a sum of changes."""
    mark = fingerprint(total)
    if total[-1] == 0:
        return None, mark
    mean = combine(total, SIGNALS)
    return mean._replace(vector=anchor + mean.vector), mark


class _Remembering:
    """Keeps what a codec leaves out, until the members change."""

    def __init__(self) -> None:
        self._feedback: ErrorFeedback | None = None
        self._generation = 0
        self._keep: Callable[[], None] = lambda: None

    def _corrected(self, contribution: Contribution, anchor: Tensor, key: Key) -> Tensor:
        """This peer's change and what was left out of those before."""
        if self._feedback is None:
            self._feedback = ErrorFeedback.of(anchor)
        if key[0] != self._generation:
            self._feedback.reset()
            self._generation = key[0]
        self._keep = lambda: None
        return self._feedback.correct(contribution.vector - anchor)

    def _sent(self, corrected: Tensor, sent: Tensor) -> None:
        feedback = self._feedback
        assert feedback is not None
        self._keep = lambda: feedback.keep(corrected, sent)

    def committed(self) -> None:
        self._keep()
        self._keep = lambda: None


class GatherAverager(_Remembering):
    def __init__(self, reducer: Reducer, codec: GatherCodec) -> None:
        super().__init__()
        self._reducer, self._codec = reducer, codec

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        brought = await off_loop(anchor.nbytes, lambda: self._brought(contribution, anchor, key))
        payloads = await self._reducer.gather(brought, key)
        return await off_loop(anchor.nbytes, lambda: self._combined(payloads, anchor))

    def _brought(self, contribution: Contribution, anchor: Tensor, key: Key) -> Tensor:
        """The encoded change, then weight and signals as float64."""
        weight = contribution.weight
        if weight == 0:
            coded = torch.zeros(self._codec.encoded_bytes(anchor.numel()), dtype=torch.uint8)
        else:
            corrected = self._corrected(contribution, anchor, key)
            coded = self._codec.encode(corrected, _seed(key, self._reducer.rank))
            self._sent(corrected, self._codec.decode(coded, anchor.numel(), anchor.dtype))
        tail = torch.tensor(
            (*_signals(contribution), weight) if weight else (0.0,) * (SIGNALS + 1), dtype=torch.float64
        )
        return torch.cat((coded, tail.view(torch.uint8)))

    def _combined(self, payloads: Sequence[tuple[str, Tensor]], anchor: Tensor) -> tuple[Mean | None, int]:
        total = torch.zeros(anchor.numel() + SIGNALS + 1, dtype=anchor.dtype)
        for sender, payload in payloads:
            coded, tail = payload[: -8 * (SIGNALS + 1)], payload[-8 * (SIGNALS + 1) :]
            *signals, weight = np.frombuffer(bytes(tail.numpy()), np.float64).tolist()
            if weight == 0:
                continue
            try:
                total += contribute(self._codec.decode(coded, anchor.numel(), anchor.dtype), weight, signals)
            except ValueError as error:
                raise PeerLost(sender, f"it sent what {self._codec.name} does not decode: {error}") from None
        return _moved(total, anchor)


class SketchAverager(_Remembering):
    def __init__(self, reducer: Reducer, codec: SketchCodec, layout: Layout, seed: int) -> None:
        super().__init__()
        self._reducer, self._codec, self._layout, self._seed = reducer, codec, layout, seed
        self._state = codec.start(layout, seed)

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        if key[0] != self._generation:  # newcomers have no other
            self._state = self._codec.start(self._layout, _seed(self._seed, key[0]))
        corrected = await off_loop(anchor.nbytes, lambda: self._corrected(contribution, anchor, key))
        values = corrected if contribution.weight else torch.zeros_like(anchor)
        sketch = self._codec.begin(values, self._layout, _seed(self._seed, key), self._state)
        agreed: Mean | None = None
        marks = []
        for stage in range(sketch.stages):
            brought = contribute(sketch.project(stage), contribution.weight, _signals(contribution))
            total = await self._reducer.sum(brought, key, stage=stage)
            marks.append(fingerprint(total))
            if total[-1] == 0:
                return None, _seed(marks)
            agreed = combine(total, SIGNALS)
            sketch.absorb(stage, agreed.vector)
        assert agreed is not None, "a sketch has a stage at least"
        if contribution.weight:
            self._sent(corrected, sketch.own())
        remember = self._keep

        def keep() -> None:
            remember()
            self._state = sketch.state()

        self._keep = keep
        return agreed._replace(vector=anchor + sketch.result()), _seed(marks)
