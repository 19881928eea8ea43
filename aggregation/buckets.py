"""Buckets: a model's gradients in pieces, so that the first are summed while others are still computed.

Source: Li et al., "PyTorch Distributed: Experiences on accelerating data parallel training" (VLDB 2020, section 3.2),
buckets of 25 MiB and a first one of 1 MiB. Backward computes last layers first, so buckets go from the last tensor to
the first. All peers know this order from their layout and need not agree on it. A gradient computed out of this order
is only late; the result is the same. Buckets are parts of the last axis, whatever leading axes a vector has.
"""

from .vector import Layout, Part

FIRST_BUCKET_BYTES, BUCKET_BYTES = 1 << 20, 25 << 20


def buckets(layout: Layout, *, first_bytes: int = FIRST_BUCKET_BYTES, each_bytes: int = BUCKET_BYTES) -> list[Part]:
    """Cut the vector into buckets: parts of whole tensors, in the order in which backward completes them, so the last
    elements of the vector come first. A bucket ends with the tensor by which it reaches its size, ``first_bytes`` for
    the first bucket and ``each_bytes`` for later ones, so it may be larger; the last one may be smaller. Bytes are
    those of the layout's dtype. Together the buckets cover every element once."""
    found: list[Part] = []
    stop = layout.size
    for slot in reversed(layout.slots):
        limit = each_bytes if found else first_bytes
        full = (stop - slot.start) * layout.dtype.itemsize >= limit
        if stop > slot.start and (full or slot.start == 0):
            found.append(Part(slot.start, stop))
            stop = slot.start
    return found
