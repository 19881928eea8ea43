"""Strangers who connect and say nothing, more than there are descriptors: nobody who was there before suffers."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from live import STEADY, Live

from samovar.protocols.addresses import split_address
from samovar.protocols.zeromq.gate import Gate

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the gate is a filter of Linux")

FILES = 128
AT_ONCE, SYN_SENT = 16, 2


class Flood:
    """Ever more connections to `way`, a few at a time, as they would not all fit in its backlog, up to `count`. Those
    that the other side has closed are begun anew."""

    def __init__(self, way: tuple[str, int], count: int) -> None:
        self._way, self._count = way, count
        self._calling, self._open = set[socket.socket](), set[socket.socket]()

    def goes_on(self) -> bool:
        """Whether all that call are kept waiting, though many have got in."""
        for one in list(self._open):
            with contextlib.suppress(BlockingIOError):
                if not one.recv(1024):
                    self._open.remove(one)
                    one.close()
        self._calling -= (got_in := {one for one in self._calling if _state(one) != SYN_SENT})
        self._open |= got_in
        while len(self._calling) < AT_ONCE and len(self._open) + len(self._calling) < self._count:
            one = socket.socket()
            one.setblocking(False)
            assert one.connect_ex(self._way) in (0, errno.EINPROGRESS)
            self._calling.add(one)
        return not got_in and len(self._calling) == AT_ONCE and len(self._open) > FILES // 4

    def end(self) -> None:
        for one in self._calling | self._open:
            one.close()


def _state(one: socket.socket) -> int:
    return one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO)


@pytest.fixture
def runs() -> Iterator[list[Live]]:
    begun: list[Live] = []
    yield begun
    for run in begun:
        run.signal(signal.SIGINT)
        run.end()


def saved(run: Live, peer: str) -> int:
    """How many checkpoints it has written."""
    return sum(row.get("event") == "checkpoint" for row in run.records(peer))


def test_a_flood_of_silent_strangers_costs_no_peer_no_connection_and_no_checkpoint_and_then_a_newcomer_gets_in(
    tmp_path: Path, runs: list[Live]
) -> None:
    options = ("--period", 4, "--steps", 10**6, "--checkpoint-every-s", 0, "--patience-s", 5, "--no-report")
    run = Live(tmp_path, "train", STEADY, "--peers", 2, *options, "--run", "run", "--schedule", "ring", files=FILES)
    runs.append(run)
    run.until(lambda: run.rounds() >= 3 and (run.folder / "join.txt").exists(), "round 3")
    _, _, address, *rest = (run.folder / "join.txt").read_text().splitlines()[1].split()
    host, port = split_address(address)
    victim = run.peers()["1"]
    flood = Flood(("127.0.0.1" if host == "*" else host, port), 2 * FILES)
    run.until(lambda: flood.goes_on(), "the gate's being shut")
    before = saved(run, "1"), run.rounds("1")
    run.until(lambda: (flood.goes_on(), saved(run, "1") >= before[0] + 20)[1], "20 checkpoints amid it")
    assert run.rounds("1") >= before[1] + 15
    assert len(os.listdir(f"/proc/{victim.pid}/fd")) < FILES
    flood.end()
    told = {f"{row['event']} {row['why']}" for row in run.records() if row["kind"] == "event"}
    assert not [one for one in told if one.split()[0] not in ("started", "checkpoint")]

    newcomer = Live(tmp_path, "join", address, *rest, "--run", "late", "--no-report", run="late")
    runs.append(newcomer)
    newcomer.until(lambda: newcomer.rounds() > 0, "the newcomer's first round")


@contextlib.asynccontextmanager
async def gated() -> AsyncIterator[Gate]:
    """A gate of a socket that listens, and no descriptor left of it in the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        before = {*os.listdir("/proc/self/fd")}
        gate = Gate(asyncio.get_running_loop(), f"tcp://127.0.0.1:{server.getsockname()[1]}")
        yield gate
        gate.close()
        assert {*os.listdir("/proc/self/fd")} == before


def test_a_reserve_that_cannot_be_held_whole_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        calls, opened = iter(range(1000)), os.open

        def five(*args: Any, **named: Any) -> int:
            if next(calls) >= 5:
                raise OSError(errno.EMFILE, "too many open files")
            return opened(*args, **named)

        monkeypatch.setattr(os, "open", five)
        async with gated() as gate:
            assert len(gate._reserve) == 5

    asyncio.run(main())


def test_a_process_without_a_standard_input_lets_others_in() -> None:
    async def main() -> None:
        async with gated() as gate:
            kept = os.dup(0)
            os.close(0)
            try:
                gate.look()
                assert not gate.shut
            finally:
                os.dup2(kept, 0)
                os.close(kept)

    asyncio.run(main())
