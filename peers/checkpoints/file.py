"""The file of a checkpoint: a safetensors file with one metadata entry, which holds a hash over the whole file.

The hash (BLAKE2b, 256 bits) is computed with 64 zeros in its own place, so no bit of the file can change unnoticed, and
any safetensors reader can open the file. The safetensors library is not used: it blocks all other threads while it
reads or serializes, 2 s for 400 MB on a busy machine, and a peer that is silent so long is declared dead.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .pytree import from_plain, to_plain

_VERSION = 1
_ZEROS = b"0" * 64
# How a file begins: 8 bytes for the length of its header, and the header's first entry.
_HEAD = re.compile(
    rb'.{8}\{"__metadata__":\{"samovar":"\{\\"checkpoint\\":(\d{1,9}),\\"blake2b\\":\\"([0-9a-f]{64})', re.S
)
_HEAD_BYTES_MAX = 256
_HEADER_BYTES_MAX = 100_000_000
"""The limit of the safetensors reader."""
_CHUNK_BYTES = 1 << 20
_CODES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.complex64: "C64",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e4m3fnuz: "F8_E4M3FNUZ", torch.float8_e5m2fnuz: "F8_E5M2FNUZ",
}  # fmt: skip
"""The dtypes that safetensors reads, with its names for them."""
_DTYPES = {code: dtype for dtype, code in _CODES.items()}


def write_file(path: Path, tensors: Mapping[str, Tensor], numbers: Mapping[str, Any]) -> None:
    """Write `tensors` and `numbers` to the file at `path`, in place, and flush it to the disk. Raises OSError;
    ValueError for a dtype or layout that safetensors has not, a tensor among the numbers, or a header above 100 MB; and
    any error of PyTorch on a broken tensor."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].element_size(), item[0]))  # for alignment
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
    """The header in safetensors' form: its length, then JSON padded to 8 bytes, with zeros in place of the hash."""
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
    """The tensor's bytes, copied: the hashed bytes are the written ones even if training changes the tensor
    meanwhile."""
    # Conjugate and negative views are flags of the tensor; its memory holds the values without them.
    whole = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()
    raw = whole.reshape(-1).view(torch.uint8).numpy().data
    for at in range(0, len(raw), _CHUNK_BYTES):
        yield bytes(raw[at : at + _CHUNK_BYTES])


def _blake2b() -> hashlib.blake2b:
    return hashlib.blake2b(digest_size=32)


def read_file(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, ordered by name, and the numbers. Raises OSError and ValueError. A file with a right hash that
    `write_file` did not write may raise any error of parsing it.

    Memory is allocated only for a file that begins like a checkpoint, and nothing is parsed before the hash is checked.
    """
    with _opened(path) as file:
        head = _head(file)
        whole = torch.empty(os.fstat(file.fileno()).st_size, dtype=torch.uint8)
        file.seek(0)
        raw, at = whole.numpy().data, head.start(2)
        file.readinto(raw)
    digest = _blake2b()
    digest.update(raw[:at])
    digest.update(_ZEROS)
    digest.update(raw[at + len(_ZEROS) :])
    if digest.hexdigest().encode() != head[2]:
        raise ValueError("it is damaged or cut short: its bytes do not have the hash it tells")
    return _parsed(whole)


def read_numbers(path: Path) -> dict[str, Any]:
    """The numbers, from the header alone, so that the hash is not checked. Raises OSError and ValueError, and any error
    of parsing a damaged header."""
    with _opened(path) as file:
        _head(file)
        file.seek(0)
        length = int.from_bytes(file.read(8), "little")
        return _numbers(json.loads(file.read(min(length, _HEADER_BYTES_MAX))))


def _opened(path: Path) -> BufferedReader:
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _head(file: BufferedReader) -> re.Match[bytes]:
    """The match of `_HEAD` at the beginning of the file. Raises ValueError when the file is no checkpoint of this
    format."""
    regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
    head = _HEAD.match(file.read(_HEAD_BYTES_MAX) if regular else b"")
    if head is None:
        raise ValueError("it is not a checkpoint of Samovar, or its beginning is damaged")
    if int(head[1]) != _VERSION:
        raise ValueError(f"it has format {int(head[1])}, this Samovar reads format {_VERSION}")
    return head


def _numbers(table: dict[str, Any]) -> dict[str, Any]:
    """The numbers in the header, whose metadata is taken out of it."""
    numbers: dict[str, Any] = from_plain({}, json.loads(table.pop("__metadata__")["samovar"])["numbers"])
    return numbers


def _parsed(whole: Tensor) -> tuple[dict[str, Tensor], dict[str, Any]]:
    data = 8 + int.from_bytes(whole[:8].numpy().tobytes(), "little")
    table = json.loads(whole[8:data].numpy().tobytes())
    numbers = _numbers(table)
    tensors = {}
    for name, entry in sorted(table.items()):
        start, end = entry["data_offsets"]
        raw = whole[data + start : data + end].clone()  # its own memory, and aligned
        if len(raw) != end - start:
            raise ValueError(f"the tensor {name!r:.60} reaches beyond the file")
        tensors[name] = raw.view(_DTYPES[entry["dtype"]]).reshape([*entry["shape"]])
    return tensors, numbers
