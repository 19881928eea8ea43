"""The file of a checkpoint: a safetensors file with one metadata entry, which holds a hash over the whole file.

The hash (BLAKE2b, 256 bits) is taken with 64 zeros in its own place, so no bit of the file can change unnoticed; any
reader of safetensors opens the file all the same.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from .nested import from_plain, to_plain

_VERSION = 1
_ZEROS = b"0" * 64
# How a file begins: 8 bytes for the length of its header, and the header's first entry.
_HEAD = re.compile(
    rb'.{8}\{"__metadata__":\{"samovar":"\{\\"checkpoint\\":(\d{1,9}),\\"blake2b\\":\\"([0-9a-f]{64})', re.S
)
_HEAD_BYTES_MAX = 256
_HEADER_BYTES_MAX = 100_000_000
"""More, and safetensors does not read it."""
_CHUNK_BYTES = 1 << 20
_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
"""What safetensors reads, by its names."""


def write_file(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write all, and flush it to the disk. Raises OSError, ValueError, and what PyTorch raises on a broken tensor."""
    # Not safetensors' own writer: it holds all other threads up, or litters the folder when it is killed.
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # so that all is aligned
    header = _header(ordered, numbers)
    head = _HEAD.match(header)
    assert head is not None
    digest = _blake2b()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for chunk in itertools.chain([header], *(_chunks(tensor) for _, tensor in ordered)):
            digest.update(chunk)
            _write_whole(file, chunk)
        os.lseek(file, head.start(2), os.SEEK_SET)
        _write_whole(file, digest.hexdigest().encode())
        os.fsync(file)
    finally:
        os.close(file)


def _write_whole(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _header(tensors: list[tuple[str, Tensor]], numbers: Mapping[str, Any]) -> bytes:
    """How safetensors has it: its length, then JSON padded to 8 bytes, here with zeros for the hash."""
    inside, plain = to_plain(dict(numbers))
    if inside:
        raise ValueError(f"{next(iter(inside))!r} is a tensor among the numbers")
    told = {"checkpoint": _VERSION, "blake2b": _ZEROS.decode(), "numbers": plain}
    table: dict[str, Any] = {"__metadata__": {"samovar": _json(told)}}
    at = 0
    for name, tensor in tensors:
        if name in table or tensor.dtype not in _CODES or tensor.layout is not torch.strided or tensor.is_meta:
            raise ValueError(f"no place for the tensor {name!r} ({tensor.dtype}, {tensor.layout}, {tensor.device})")
        table[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": [*tensor.shape],
            "data_offsets": [at, at + tensor.nbytes],
        }
        at += tensor.nbytes
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    if len(text) > _HEADER_BYTES_MAX:
        raise ValueError(f"its names and numbers take {len(text)} bytes, at most {_HEADER_BYTES_MAX} are read")
    return len(text).to_bytes(8, "little") + text


def _json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def _chunks(tensor: Tensor) -> Iterator[bytes]:
    """The tensor's bytes. Copied, so that what is hashed is what is written even if somebody still trains on it."""
    # Conjugate and negative views are marks on the tensor; its memory does not know of them.
    whole = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = whole.reshape(-1).view(torch.uint8).numpy().data
    for at in range(0, len(raw), _CHUNK_BYTES):
        yield bytes(raw[at : at + _CHUNK_BYTES])


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, by name in order, and the numbers. Raises OSError, ValueError, SafetensorError.

    Memory is taken only for a file that begins like a checkpoint, and nothing is parsed before the hash is right.
    """
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        start = file.read(_HEAD_BYTES_MAX) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        head = _HEAD.match(start)
        if head is None:
            raise ValueError("it is not a checkpoint of Samovar, or its beginning is damaged")
        if int(head[1]) != _VERSION:
            raise ValueError(f"it has format {int(head[1])}, this Samovar reads format {_VERSION}")
        blob = start + file.read()
    whole, at = memoryview(blob), head.start(2)
    digest = _blake2b()
    digest.update(whole[:at])
    digest.update(_ZEROS)
    digest.update(whole[at + len(_ZEROS) :])
    if digest.hexdigest().encode() != head[2]:
        raise ValueError("it is damaged or cut short: its bytes do not have the hash it tells")
    told = json.loads(json.loads(blob[8 : 8 + int.from_bytes(blob[:8], "little")])["__metadata__"]["samovar"])
    tensors = safetensors.torch.load(blob)
    return dict(sorted(tensors.items())), from_plain({}, told["numbers"])
