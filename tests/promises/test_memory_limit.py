"""A limit to a peer's memory: what libzmq collects for a key that was let in costs that peer at most."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq
from live import STEADY, Live, verb

from samovar.peers.errors import one_line
from samovar.peers.launch.keys import Invite
from samovar.peers.machine.process_memory import memory_hint
from samovar.protocols.zeromq.transport import KeyPair

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")

HEADROOM_BYTES = 300_000_000
"""Beyond what a peer's process takes when it begins: hundreds of MB more where PyTorch brings its CUDA libraries."""
TAKEN = """
import samovar.peers.launch.process
from samovar.peers.machine.process_memory import _taken_bytes

print(_taken_bytes())
"""
GATED = """
import os
import sys
import time

sys.path.insert(0, {tasks!r})
import steady
from steady import data, evaluate, model, optimizer

steps = 0


def loss(model, batch):
    global steps
    steps += 1
    while steps > 25 and not os.path.exists({mark!r}):
        time.sleep(0.01)
    return steady.loss(model, batch)
"""
"""Its fourth round waits until the mark is there. One batch more is that on which the task is tried."""


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    context = zmq.Context()
    yield context
    context.destroy(linger=0)


def limit_with_headroom() -> str:
    taken = subprocess.run([sys.executable, "-c", TAKEN], capture_output=True, text=True, check=True, timeout=90).stdout
    return f"{(int(taken) + HEADROOM_BYTES) // 10**6}MB"


def connected(context: zmq.Context[zmq.Socket[bytes]], keys: KeyPair, way: list[str]) -> zmq.Socket[bytes]:
    """By a line of join.txt."""
    socket = context.socket(zmq.DEALER)
    socket.curve_publickey, socket.curve_secretkey = bytes.fromhex(keys.public), bytes.fromhex(keys.secret)
    socket.curve_serverkey = bytes.fromhex(Invite.from_text(way[way.index("--invite") + 1]).contact)
    socket.linger, socket.reconnect_ivl, socket.sndtimeo, socket.immediate = 0, -1, 60_000, 1
    socket.connect(next(word for word in way if word.startswith("tcp://")))
    return socket


def send_frames(socket: zmq.Socket[bytes], frame: bytes, count: int) -> None:
    """One message of so many."""
    more = int(zmq.SNDMORE)
    for _ in range(count - 1):
        socket.send(frame, more)
    socket.send(frame)


@pytest.mark.soak  # ten million frames take a busy machine minutes
def test_a_message_of_many_frames_ends_the_peer_that_gets_it_at_its_limit_and_no_other(
    tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    keys, limit = KeyPair.new(), limit_with_headroom()
    mark = tmp_path / "mark"
    (tmp_path / "task.py").write_text(GATED.format(tasks=str(STEADY.parent), mark=str(mark)))
    (tmp_path / "friends.pub").write_text(keys.public + "\n")
    options = ("--peers", 3, "--period", 8, "--steps", 64, "--run", "run", "--json", "--no-report")
    options += ("--authorized", "friends.pub", "--memory-limit", limit, "--patience-s", 60)
    run = Live(tmp_path, "train", "task.py", *options)
    run.until(lambda: run.rounds() == 3 and (run.folder / "join.txt").exists(), "round 3")
    way = (run.folder / "join.txt").read_text().splitlines()[1].split()

    large = connected(context, keys, way)
    monitor = large.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    monitor.rcvtimeo = 60_000
    send_frames(large, bytes(1_000_000), 1000)
    monitor.recv_multipart()  # libzmq has no memory for a frame: it closes that connection, and frees what it had
    large.disable_monitor()
    monitor.close()
    large.close()
    assert len(run.peers()) == 3

    tiny = connected(context, keys, way)
    send_frames(tiny, b"x", 10_000_000)  # 64 bytes each in libzmq: twice the headroom
    run.until(lambda: len(run.peers()) == 2, "the end of the peer that got it")
    tiny.close()
    mark.touch()
    ended = run.end()
    assert (ended.code, ended.left) == (0, []), ended.err
    assert [lost["peer"] for lost in ended.result["lost"]] == ["1"]
    why = ended.result["lost"][0]["why"]
    # By libzmq, unless its own thread lacks some.
    killed = f"its process was killed by signal 6, perhaps at its memory limit of {limit}"
    assert why == killed or f"it may take {limit.removesuffix('MB')} MB (--memory-limit)" in why
    assert [peer["steps"] for peer in ended.result["peers"] if peer["peer"] != "1"] == [64, 64]
    if why == killed:
        told = {row["why"] for row in run.records() if row.get("event") == "lost"}
        assert told == {why}
        assert "OUT OF MEMORY" in (run.folder / "peer-1.log").read_text()
    assert {path.stem for path in (run.folder / "checkpoint").glob("*")} >= {"peer-0", "peer-2"}


LIMITED = """
import asyncio
from samovar.peers.machine.process_memory import limit_memory

async def main():
    limit_memory({limit!r})
    asyncio.get_running_loop().call_soon({work})
    await asyncio.sleep(60)

asyncio.run(main())
"""


def limited(limit: str, work: str) -> tuple[int, str]:
    code = LIMITED.format(limit=limit, work=work)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=90)
    return done.returncode, done.stderr


def test_a_callback_that_lacks_memory_ends_the_process_in_one_line() -> None:
    told = "samovar: out of memory; it may take 2000 MB (--memory-limit)\n"
    assert limited("2GB", "lambda: bytes(3 * 10**9)") == (1, told)


def test_a_limit_below_the_present_memory_of_the_process_is_refused_in_a_line(tmp_path: Path) -> None:
    code, told = limited("1MB", "int")
    assert code == 1
    last = told.splitlines()[-1]
    assert last.startswith("ValueError: --memory-limit 1MB: this process takes ")
    assert last.endswith(" MB already: allow it more")


def test_a_memory_limit_is_refused_in_a_line_where_the_system_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("samovar.peers.machine.process_memory.sys.platform", "darwin")
    done = verb("join", "tcp://127.0.0.1:1", STEADY, "--insecure", "--peer-key", "a", "--memory-limit", "8GB")
    assert done.exit_code == 2
    why = "there is no such limit on this system, only on Linux: leave it out"
    assert done.stderr == f"samovar: --memory-limit 8GB: {why}\n"


@pytest.mark.parametrize("bad", ["8", "0GB", "lots", "-1GB"])
def test_a_limit_that_is_no_size_is_refused(bad: str) -> None:
    done = verb("train", STEADY, "--memory-limit", bad)
    assert done.exit_code == 2
    assert done.stderr.count("\n") == 1
    assert "--memory-limit must be a size above 0 such as 500MB, 8GB or 8GiB" in done.stderr


def test_an_error_of_memory_tells_the_limit_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    torchs = RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 400 bytes")
    no_stack = RuntimeError("can't start new thread")
    assert memory_hint() == ""
    assert one_line(no_stack) == "RuntimeError: can't start new thread", "it may be another limit, of processes"
    monkeypatch.setattr("resource.getrlimit", lambda which: (8 * 10**9, 8 * 10**9))
    for error in (MemoryError(), torchs, no_stack):
        assert one_line(error).endswith("; it may take 8000 MB (--memory-limit)")
    assert "memory" not in one_line(ValueError("another"))


KEPT = """
import torch
from pathlib import Path
from samovar.peers.machine import process_memory
from samovar.peers.machine.process_memory import Returns, keep_freed_memory

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

keep_freed_memory()
process_memory._LOOK_S = 0.0
returns, before = Returns(), resident()
for blocks in (100, 2000):
    every = [torch.ones(16 << 10) for _ in range(blocks)]
    returns()
    most = resident()
    del every
    returns()
    print(most - before, resident() - before)
"""


def test_a_server_returns_freed_memory_where_much_of_it_is_unused() -> None:
    ended = subprocess.run([sys.executable, "-c", KEPT], capture_output=True, text=True, check=True)
    (little, kept), (much, left) = (map(int, line.split()) for line in ended.stdout.splitlines())
    assert kept > 0.9 * little, "to return it would take longer than to keep it"
    assert much > 120 << 20
    assert left < 20 << 20
