"""The choice of a run's averager."""

from __future__ import annotations

from collections.abc import Sequence

from ...aggregation.codecs.codec import Codec
from ...aggregation.fragments import Fragments
from ...aggregation.vector import Part
from ..collectives.reducer import Reducer
from .averagers import Averager, Layouts, Owed, averager_for
from .bucketwise import BucketAverager
from .fragmentwise import FragmentAverager


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
