"""Buckets: all of a layout, once, in the order in which backward completes it."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samovar.aggregation.buckets import buckets
from samovar.aggregation.vector import Layout


@given(
    sizes=st.lists(st.integers(0, 50), min_size=1, max_size=20).filter(any),
    first=st.integers(1, 300),
    each=st.integers(1, 600),
)
def test_buckets_cover_every_element_once_from_the_last_to_the_first(sizes: list[int], first: int, each: int) -> None:
    layout = Layout.of({f"t{index}": torch.zeros(size) for index, size in enumerate(sizes)})
    found = buckets(layout, first_bytes=first, each_bytes=each)
    covered = [element for part in found[::-1] for element in range(part.start, part.stop)]
    assert covered == list(range(layout.size))
    assert {part.start for part in found} <= {slot.start for slot in layout.slots}, "a tensor is never cut"
    for part, limit in zip(found[:-1], [first, *[each] * len(found)], strict=False):
        assert (part.stop - part.start) * 4 >= limit


@pytest.mark.parametrize(("sizes", "bounds"), [([10, 20, 30], [(30, 60), (0, 30)]), ([10, 300], [(10, 310), (0, 10)])])
def test_the_first_bucket_is_small_so_that_sums_begin_early(sizes: list[int], bounds: list[tuple[int, int]]) -> None:
    layout = Layout.of({f"t{index}": torch.zeros(size) for index, size in enumerate(sizes)})
    assert buckets(layout, first_bytes=100, each_bytes=1000) == bounds
