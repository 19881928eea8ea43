"""A checkpoint is whole and exact, or is not there: whatever fails in saving it, whatever becomes of its bytes."""

import errno
import hashlib
import json
import os
import random
import stat
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

import pytest
import safetensors.torch
import torch
from live import python
from tiers import soaked
from torch import Tensor, nn

from samovar.peers.checkpoints import file as checkpoint_file
from samovar.peers.checkpoints.checkpoint import CheckpointError, Snapshot, load, save

DTYPES = sorted(checkpoint_file._CODES, key=str)


def exactly(tensors: Mapping[str, Tensor]) -> dict[str, tuple[object, ...]]:
    """What must come back: dtype, shape, and every bit."""
    return {
        name: (tensor.dtype, tensor.shape, tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
        for name, tensor in sorted(tensors.items())
    }


def some(seed: int = 0, size: int = 1000) -> Snapshot:
    made = torch.Generator().manual_seed(seed)
    tensors = {"b": torch.randn(size, generator=made), "a": torch.arange(3), "zero": torch.tensor(seed)}
    return Snapshot(tensors, {"seed": seed, "rate": 0.1, "who": "ünï\n\"'\\", "sizes": (1, 2), "x": [None, True, {}]})


def assert_loads(path: Path, *allowed: Snapshot) -> None:
    found = load(path)
    (same,) = [each for each in allowed if each.numbers["seed"] == found.numbers["seed"]]
    assert repr(found.numbers) == repr(same.numbers)
    assert exactly(found.tensors) == exactly(same.tensors)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "peer-0.safetensors"


def test_a_saved_snapshot_is_loaded(path: Path) -> None:
    save(path, some())
    assert_loads(path, some())
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_shape_comes_back_to_the_bit(path: Path, dtype: torch.dtype) -> None:
    raw = torch.arange(256, dtype=torch.int64).to(torch.uint8)  # all bit patterns: every NaN, every denormal
    whole = (raw % 2).to(torch.bool) if dtype == torch.bool else raw.view(dtype)
    matrix = whole.reshape(4, -1)
    shapes = {
        "whole": whole,
        "scalar": whole[1].reshape(()),
        "empty": whole[:0].reshape(0, 3),
        "turned": matrix.t(),
        "strided": whole[::2],
        "repeated": whole[:1].expand(5),
        "shared": whole,
    }
    save(path, Snapshot(shapes, {}))
    found = load(path).tensors
    assert exactly(found) == exactly(shapes)
    found["whole"].zero_()  # nothing else shares its memory
    assert exactly({"shared": found["shared"]}) == exactly({"shared": whole})


def test_views_that_are_only_marked_are_saved_as_they_look(path: Path) -> None:
    numbers = torch.tensor([1 + 2j, 3 - 4j])
    save(path, Snapshot({"conjugate": numbers.conj(), "negative": numbers.conj().imag}, {}))
    assert load(path).tensors["conjugate"].tolist() == [1 - 2j, 3 + 4j]
    assert load(path).tensors["negative"].tolist() == [-2.0, 4.0]


def test_parameters_that_are_views_of_one_vector_are_saved(path: Path) -> None:
    flat = torch.arange(10.0)
    halves = {"a": nn.Parameter(flat[:5]), "b": nn.Parameter(flat[5:])}
    save(path, Snapshot(halves, {}))
    assert load(path).tensors["b"].tolist() == [5, 6, 7, 8, 9]


def test_any_reader_of_safetensors_reads_it_and_equal_snapshots_make_equal_files(path: Path) -> None:
    save(path, some())
    read = path.read_bytes()
    assert torch.equal(safetensors.torch.load(read)["b"], some().tensors["b"])
    for _ in range(5):
        save(path, some())
        assert path.read_bytes() == read


@pytest.mark.parametrize(
    ("tensors", "said"),
    [
        ({"x": torch.ones(1, dtype=torch.complex128)}, "'x' .*complex128"),
        ({"x": torch.ones(1).to_sparse()}, "'x' .*sparse"),
        ({"x": torch.ones(1, device="meta")}, "meta"),
        ({"__metadata__": torch.ones(1)}, "'__metadata__'"),
    ],
)
def test_a_tensor_that_cannot_be_saved_is_named(path: Path, tensors: dict[str, Tensor], said: str) -> None:
    with pytest.raises(CheckpointError, match=f"cannot save checkpoint .*{said}"):
        save(path, Snapshot(tensors, {}))


@pytest.mark.parametrize("name", ["open", "write", "lseek", "fsync", "replace"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_call_that_fails_leaves_a_checkpoint_that_loads(
    path: Path, monkeypatch: pytest.MonkeyPatch, name: str, number: int
) -> None:
    before, after = some(1, size=600_000), some(2, size=600_000)
    real, calls, failed = getattr(os, name), 0, 0

    def failing(*args: object, **named: object) -> object:
        nonlocal calls
        calls += 1
        if calls == failed + 1:
            raise OSError(number, os.strerror(number))
        return real(*args, **named)

    save(path, before)
    while True:
        calls = 0
        with monkeypatch.context() as patch:
            patch.setattr(os, name, failing)
            said = save_and_tell(path, after)
        if not said:
            break
        failed += 1
        assert os.strerror(number).lower() in said.lower()
        assert "previous checkpoint is untouched" in said or (name in ("open", "fsync") and "power failure" in said)
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        assert_loads(path, before, after)
    assert failed == {"open": 2, "write": 7, "fsync": 2}.get(name, 1)
    assert_loads(path, after)


def save_and_tell(path: Path, snapshot: Snapshot) -> str:
    """What the error says, "" if there is none."""
    try:
        save(path, snapshot)
        return ""
    except CheckpointError as error:
        said = str(error)
    assert str(path) in said
    assert "\n" not in said
    return said


def test_writes_that_take_only_a_part_are_gone_on_with(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    save(path, some())
    assert_loads(path, some())


def test_a_file_system_that_cannot_flush_a_folder_is_no_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fsync

    def fsync(file: int) -> None:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise OSError(errno.EINVAL, "")
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    save(path, some())
    assert_loads(path, some())


@pytest.mark.parametrize("failures", [3, 1000])
def test_a_checkpoint_waits_for_a_file_descriptor_but_not_for_ever(
    path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """As strangers' connections may have taken all, until the gate frees some."""
    opened, left, pauses = os.open, [errno.EMFILE] * failures, list[float]()

    def opens(*arguments: object, **more: object) -> int:
        if left:
            raise OSError(left.pop(), "too many open files")
        return opened(*arguments, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", opens)
    monkeypatch.setattr("time.sleep", pauses.append)
    if failures == 1000:
        with pytest.raises(CheckpointError, match="too many open files"):
            save(path, Snapshot({}, {"number": 1}))
    else:
        save(path, Snapshot({}, {"number": 1}))
        assert load(path).numbers == {"number": 1}
    assert 0.0 < sum(pauses) <= 4.0


def test_an_interrupt_leaves_nothing_behind(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    save(path, some(1))
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save(path, some(2))
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert_loads(path, some(1))


def test_places_where_nothing_can_be_saved_are_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path, why in [
        (tmp_path / "file" / "x", "not a directory|file exists"),
        (tmp_path, "."),
        (Path(), "."),
        (tmp_path / ("x" * 300), "file name too long"),
        (tmp_path / "a\0b", "null"),
    ]:
        with pytest.raises(CheckpointError, match=f"cannot save checkpoint .*: .*{why}"):
            save(path, some())
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


FULL_DISK = """
import resource, sys
from pathlib import Path
import torch
from samovar.peers.checkpoints.checkpoint import *

path, big = Path(sys.argv[1]), Snapshot({"a": torch.ones(30_000)}, {"seed": 2})
save(path, Snapshot({"a": torch.zeros(10)}, {"seed": 1}))
_, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
limits = [0, 1, 8, 100, 200, 4095, 4096, 4097, *range(8192, 120_000, 8192)]
for limit in limits:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        save(path, big)
        sys.exit(f"saved within {limit} bytes")
    except CheckpointError as error:
        assert "file too large; the previous checkpoint is untouched" in str(error), error
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert load(path).numbers["seed"] == 1
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
save(path, big)
assert load(path).numbers["seed"] == 2
"""

KILLED = """
import os, random, signal, sys, time
from pathlib import Path
import torch
from samovar.peers.checkpoints.checkpoint import *

torch.set_num_threads(1)
path, rng, seen, cut = Path(sys.argv[1]), random.Random(7), set(), 0
save(path, Snapshot({"a": torch.zeros(400_000)}, {"seed": 0}))
for trial in range(10):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        seed = load(path).numbers["seed"]
        while True:
            seed += 1
            save(path, Snapshot({"a": torch.full((400_000,), float(seed))}, {"seed": seed}))
            os.write(writing, b".")
    os.read(reading, 1)
    time.sleep(rng.uniform(0, 0.05))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(reading)
    os.close(writing)
    cut += path.with_name(path.name + ".tmp").exists()
    found = load(path)
    assert (found.tensors["a"] == found.numbers["seed"]).all()
    seen.add(found.numbers["seed"])
save(path, Snapshot({}, {}))
assert [file.name for file in path.parent.iterdir()] == [path.name]
assert len(seen) == 10 and cut > 0, (seen, cut)
"""


@pytest.mark.parametrize("script", [FULL_DISK, KILLED], ids=["a full disk", "killed while it saves"])
def test_the_file_always_loads(path: Path, script: str) -> None:
    done = python("-c", script, path)
    assert done.returncode == 0, done.stdout + done.stderr


def assert_refused(path: Path, raw: bytes, said: str = "cannot load checkpoint") -> None:
    path.write_bytes(raw)
    with pytest.raises(CheckpointError, match=said) as error:
        load(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def header_end(raw: bytes) -> int:
    return 8 + int.from_bytes(raw[:8], "little")


def test_a_file_cut_short_anywhere_is_refused(path: Path) -> None:
    save(path, some(size=50_000))
    raw = path.read_bytes()
    for size in [*range(header_end(raw) + 1), *range(4096, len(raw), 4096), len(raw) - 1]:
        assert_refused(path, raw[:size])
    assert_refused(path, raw + b"\0", "damaged")
    assert_refused(path, raw + raw, "damaged")


@pytest.mark.parametrize("every", [5, soaked(1)])
def test_a_flipped_bit_is_noticed(path: Path, every: int) -> None:
    save(path, some(size=5000))
    raw, rng = path.read_bytes(), random.Random(7)
    for at in [*range(0, 8 * header_end(raw), every), *(rng.randrange(8 * len(raw)) for _ in range(400 // every))]:
        spoiled = bytearray(raw)
        spoiled[at // 8] ^= 1 << at % 8
        assert_refused(path, bytes(spoiled))


def test_a_file_that_is_no_checkpoint_is_refused(path: Path, tmp_path: Path) -> None:
    save(path, some())
    raw = path.read_bytes()
    assert_refused(path, b"", "not a checkpoint")
    assert_refused(path, random.Random(7).randbytes(10_000), "not a checkpoint")
    assert_refused(path, safetensors.torch.save({"a": torch.ones(3)}, {"samovar": "1"}), "not a checkpoint")
    assert_refused(
        path, raw.replace(b'checkpoint\\":1', b'checkpoint\\":2'), "has format 2, this Samovar reads format 1"
    )
    with pytest.raises(CheckpointError, match="there is no checkpoint"):
        load(tmp_path / "none")
    with pytest.raises(CheckpointError, match="is a directory"):
        load(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load(tmp_path / "pipe")


@pytest.mark.parametrize("length", [0, 1, 2**32, 2**62, 2**63, 2**64 - 1])
def test_a_lie_about_the_header_allocates_nothing(path: Path, length: int) -> None:
    save(path, some())
    raw = length.to_bytes(8, "little") + path.read_bytes()[8:]
    tracemalloc.start()
    try:
        assert_refused(path, raw, "damaged")
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1 << 20


def test_a_huge_file_that_is_no_checkpoint_is_not_read(path: Path) -> None:
    path.parent.mkdir()
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="not a checkpoint"):
        load(path)


FINE = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def made_with(entry: object) -> bytes:
    """A file with the right hash, whose only tensor has this entry in the header."""
    numbers = json.dumps({"checkpoint": 1, "blake2b": "0" * 64, "numbers": {}}, separators=(",", ":"))
    header = json.dumps({"__metadata__": {"samovar": numbers}, "a": entry}, separators=(",", ":")).encode()
    raw = len(header).to_bytes(8, "little") + header + bytes(8)
    return raw.replace(b"0" * 64, hashlib.blake2b(raw, digest_size=32).hexdigest().encode(), 1)


@pytest.mark.parametrize(
    "entry",
    [
        [], 1, {}, {**FINE, "dtype": "F33"}, {**FINE, "dtype": []}, {**FINE, "shape": [3]}, {**FINE, "shape": [2**62]},
        {**FINE, "shape": [-2]}, {**FINE, "shape": 2}, {**FINE, "shape": ["2"]}, {**FINE, "shape": [0]},
        {**FINE, "data_offsets": [0, 7]}, {**FINE, "data_offsets": [0, 16]}, {**FINE, "data_offsets": [4, 2**70]},
        {**FINE, "data_offsets": [8, 0]}, {**FINE, "data_offsets": [0]}, {**FINE, "data_offsets": "08"},
        {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 0]}, {**FINE, "shape": [[]] * 100_000},
    ],
)  # fmt: skip
def test_a_file_made_to_harm_is_refused_in_one_line(path: Path, entry: object) -> None:
    """Its hash is right, so that somebody made it on purpose."""
    path.parent.mkdir()
    path.write_bytes(made_with(FINE))
    assert load(path).tensors["a"].tolist() == [0.0, 0.0]
    assert_refused(path, made_with(entry))
