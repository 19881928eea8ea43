"""The choice of a run's averager."""

from __future__ import annotations

from collections.abc import Sequence

from ...aggregation.codecs.codec import Codec
from ...aggregation.fragments import Fragments
from ...aggregation.vector import Part
from ..collectives.reducer import Reducer
from .averagers import Averager, GatherAverager, HopAverager, Layouts, Owed, PlainAverager
from .bucketwise import BucketAverager
from .fragmentwise import FragmentAverager
from .sketched import SketchAverager


def chosen(
    reducer: Reducer,
    layout: Layouts,
    fragments: Fragments,
    *,
    codec: Codec | None,
    owed: Owed | None,
    buckets: Sequence[Part],
    seed: int,
) -> Averager:
    """The averager of a run. With `buckets`, which exclude a codec, it averages bucket by bucket; otherwise it has one
    averager for each of the `fragments`. `layout` returns the layout with given parameters unfrozen. `codec`: None:
    vectors are sent as they are. `owed`: the compression residual of a resumed run, used only where the model is
    averaged whole; None: there is none."""
    if buckets:
        return BucketAverager(reducer, buckets)
    count = len(fragments.parts)
    each = [averager_for(codec, reducer, layout, seed, None if count > 1 else owed, count) for _ in fragments.parts]
    return FragmentAverager(each, fragments) if count > 1 else each[0]


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
