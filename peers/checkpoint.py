"""Checkpoints: tensors and numbers in one safetensors file, hashed, and written whole or not at all.

The new file grows beside the old one, is flushed to the disk and only then takes its name: at every moment the name
stands for a whole checkpoint, the one before or the new one. One process at a time may save to a path.
The hash (BLAKE2b) is over the whole file, with 64 zeros in its own place, so no bit can change unnoticed.
Cost: saving and loading take memory for two more copies of the tensors, for as long as they last.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor

from .nested import from_plain, to_plain

_VERSION = 1
_ZEROS = b"0" * 64
# How a file begins, after the 8 bytes of its header's length. One metadata entry, as safetensors shuffles several.
_HEAD = re.compile(
    rb'.{8}\{"__metadata__":\{"samovar":"\{\\"checkpoint\\":(\d{1,9}),\\"blake2b\\":\\"([0-9a-f]{64})', re.S
)
_HEAD_BYTES_MAX = 256
_DTYPES = frozenset(
    getattr(torch, name)
    for name in "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint64 uint32 uint16 uint8 bool complex64 "
    "float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz".split()
)
"""What safetensors both writes and reads."""
# What the tensors, safetensors and JSON raise on what they cannot hold.
_UNFIT = (SafetensorError, ValueError, TypeError, KeyError, RuntimeError, AssertionError, MemoryError)


class CheckpointError(ValueError):
    """A checkpoint could not be saved or loaded: one line, for a person."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a checkpoint holds. `numbers`: any nesting of None, bools, ints, floats, text, lists, tuples and dicts."""

    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]


def save(path: Path, snapshot: Snapshot) -> None:
    """Write `snapshot` to `path`, and its folder if there is none. Raises CheckpointError; what was at `path` is then
    still there, and nothing else. The tensors may be views and on any device; they must not change meanwhile."""
    beside = path.with_name(path.name + ".tmp")
    try:
        try:
            blob, at = _serialized(snapshot)
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(beside, blob, at)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    except (OSError, *_UNFIT) as error:
        before = "the previous checkpoint is untouched" if os.path.lexists(path) else "there is no previous one"
        raise CheckpointError(f"cannot save checkpoint {path}: {_reason(error)}; {before}") from None
    try:
        _flush_folder(path.parent)
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} may not outlive a power failure: {_reason(error)}") from None


def load(path: Path) -> Snapshot:
    """The snapshot at `path`, its tensors on the CPU. Raises CheckpointError unless every bit is as it was saved."""
    try:
        blob = _read(path)
        header_bytes = int.from_bytes(blob[:8], "little")
        told = json.loads(json.loads(blob[8 : 8 + header_bytes])["__metadata__"]["samovar"])
        tensors = safetensors.torch.load(blob)
        return Snapshot(dict(sorted(tensors.items())), from_plain({}, told["numbers"]))
    except FileNotFoundError:
        raise CheckpointError(f"there is no checkpoint {path}") from None
    except CheckpointError:
        raise
    except (OSError, RecursionError, *_UNFIT) as error:
        raise CheckpointError(f"cannot load checkpoint {path}: {_reason(error)}") from None


def optimizer_to_plain(state_dict: Mapping[str, Any]) -> tuple[dict[str, Tensor], Any]:
    """An optimizer's state as tensors and a rest that JSON carries. Raises CheckpointError on what is neither."""
    try:
        return to_plain(dict(state_dict))
    except ValueError as error:
        raise CheckpointError(f"this optimizer's state cannot be saved: {error}") from None


def optimizer_from_plain(tensors: Mapping[str, Tensor], plain: Any) -> dict[str, Any]:
    """The state that `optimizer_to_plain` split. Raises CheckpointError when the two do not belong together."""
    try:
        state = from_plain(tensors, plain)
    except ValueError as error:
        raise CheckpointError(f"this is no optimizer's state: {error}") from None
    if not isinstance(state, dict):
        raise CheckpointError(f"this is no optimizer's state: it is a {type(state).__name__}")
    return state


def _serialized(snapshot: Snapshot) -> tuple[bytes, int]:
    """The file's bytes with zeros for the hash, and where it belongs."""
    inside, numbers = to_plain(dict(snapshot.numbers))
    if inside:
        raise ValueError(f"{next(iter(inside))!r} is a tensor among the numbers")
    told = {"checkpoint": _VERSION, "blake2b": _ZEROS.decode(), "numbers": numbers}
    copies = {name: _copy(name, tensor) for name, tensor in snapshot.tensors.items()}
    blob = safetensors.torch.save(copies, {"samovar": json.dumps(told, separators=(",", ":"), allow_nan=False)})
    head = _HEAD.match(blob)
    assert head is not None, "safetensors writes its header in another way"
    return blob, head.start(2)


def _copy(name: str, tensor: Tensor) -> Tensor:
    if name == "__metadata__" or tensor.dtype not in _DTYPES or tensor.layout is not torch.strided:
        raise ValueError(f"no place for the tensor {name!r} ({tensor.dtype}, {tensor.layout})")
    # Conjugate and negative views are marks on the tensor; the bytes below do not know of them.
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return tensor.clone(memory_format=torch.contiguous_format)


def _write(path: Path, blob: bytes, at: int) -> None:
    digest = hashlib.blake2b(blob, digest_size=32).hexdigest().encode()
    whole = memoryview(blob)
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for piece in (whole[:at], memoryview(digest), whole[at + len(digest) :]):
            while piece:
                piece = piece[os.write(file, piece) :]
        os.fsync(file)
    finally:
        os.close(file)


def _flush_folder(folder: Path) -> None:
    """Make the new name outlive a power failure."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that has no such thing
            raise
    finally:
        os.close(file)


def _read(path: Path) -> bytes:
    """The bytes of a whole checkpoint. Memory is taken only for a file that begins like one."""
    with path.open("rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        start = file.read(_HEAD_BYTES_MAX) if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else b""
        head = _HEAD.match(start)
        if head is None:
            raise CheckpointError(f"{path} is not a checkpoint of Samovar, or its beginning is damaged")
        if int(head[1]) != _VERSION:
            raise CheckpointError(f"checkpoint {path} has format {int(head[1])}, this Samovar reads format {_VERSION}")
        blob = start + file.read()
    whole, at = memoryview(blob), head.start(2)
    digest = hashlib.blake2b(whole[:at], digest_size=32)
    digest.update(_ZEROS)
    digest.update(whole[at + len(_ZEROS) :])
    if digest.hexdigest().encode() != head[2]:
        raise CheckpointError(f"checkpoint {path} is damaged or cut short: its bytes do not have the hash it tells")
    return blob


def _reason(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "not enough memory"
    return f"{' '.join(str(error).split()) or type(error).__name__:.300}"
