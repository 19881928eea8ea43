"""The byte layout of codecs: blocks with a scale each, codes of a few bits, and numbers read from a frame of bytes."""

import torch
from torch import Tensor
from torch.nn.functional import pad


def join(*tensors: Tensor) -> Tensor:
    """The bytes of all tensors, one after another, as uint8 [bytes]. The caller puts wide types first, so that each
    tensor is aligned."""
    return torch.cat([tensor.reshape(-1).view(torch.uint8) for tensor in tensors])


def read(payload: Tensor, start: int, count: int, dtype: torch.dtype) -> Tensor:
    """The ``count`` numbers of type ``dtype`` that begin at byte ``start`` of the payload. A view where the memory's
    alignment allows, else a copy."""
    cut = payload[start : start + count * dtype.itemsize]
    aligned = cut.is_contiguous() and cut.storage_offset() % dtype.itemsize == 0 == cut.data_ptr() % dtype.itemsize
    return (cut if aligned else cut.clone(memory_format=torch.contiguous_format)).view(dtype)


def blocks_in(count: int, block: int) -> int:
    """The number of blocks of ``block`` elements for ``count`` elements, the last perhaps partial."""
    return -(-count // block)


def to_blocks(values: Tensor, block: int) -> Tensor:
    """``values`` [..., n] cut into blocks [..., blocks, block]. The last block of each row is padded with zeros.
    Returns a view where no padding is needed."""
    missing = -values.shape[-1] % block
    padded = pad(values, (0, missing)) if missing else values
    blocks: Tensor = padded.unflatten(-1, (padded.shape[-1] // block, block))
    return blocks


def scale_blocks(values: Tensor, scales: Tensor, block: int) -> Tensor:
    """Multiply each block of ``values`` [..., n], in place, with its scale [..., blocks]. Returns ``values``."""
    whole = values.shape[-1] // block
    values[..., : whole * block].unflatten(-1, (whole, block)).mul_(scales[..., :whole, None])
    values[..., whole * block :].mul_(scales[..., whole:])
    return values


def packed_bytes(count: int, bits: int) -> int:
    """The number of bytes that `pack` makes of ``count`` codes of ``bits`` bits, which are 1, 2, 4 or 8."""
    return blocks_in(count, 8 // bits)


def pack(codes: Tensor, bits: int) -> Tensor:
    """Pack codes ([n], uint8, below 2**bits) into uint8 [packed_bytes(n, bits)]. With c codes to a byte and m bytes,
    byte j has codes j, j+m, j+2m, ..., lowest bits first; bits for codes beyond the last one are 0. In this order whole
    stretches of memory are shifted at once."""
    count, in_byte = codes.numel(), 8 // bits
    rows = pad(codes, (0, -count % in_byte)).view(in_byte, -1)
    packed = rows[0].clone()
    for index in range(1, in_byte):
        packed |= rows[index] << (bits * index)
    return packed


def unpack(packed: Tensor, count: int, bits: int) -> Tensor:
    """The first ``count`` codes (uint8 [count]) that `pack` packed. Raises ValueError where the padding bits of the
    last bytes are not 0."""
    mask = (1 << bits) - 1
    codes = torch.cat([(packed >> (bits * index)) & mask for index in range(8 // bits)])
    if bool(codes[count:].any()):
        raise ValueError("the bits after the last element of the payload are not 0")
    return codes[:count]
