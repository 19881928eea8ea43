"""Real processes on real links: each in a network namespace of its own, on a cable of its own to one bridge, and the
kernel (`tc ... tbf`) holds what each sends and receives to a rate.

Nothing of it has a name outside the namespaces, which have none either: they end with their processes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from _processes import Inhabitant, Room

from samovar.peers.settings.link_text import parse_rate

QUEUE_S = 0.1
"""What a router keeps waiting before it drops."""
LATE_S = 0.02
"""How late the kernel may be without losing bandwidth, as it is on a busy machine: tbf's burst."""
_BUNDLE_S = 0.001
"""A router drops packets, a virtual cable what the kernel bundles, 45 of them at once if it may: no bundle is longer
than this on its link."""
_INSIDE = "SAMOVAR_BENCHMARK_INSIDE"
"""Set once this script runs in a network namespace of its own."""
_TCP = Path("/proc/sys/net/ipv4/tcp_congestion_control")
_TRY = f"""ip link add one type veth peer name two; ip link add bridge type bridge
tc qdisc add dev one root tbf $LIMITS; echo reno > {_TCP}"""
_PACKET_BYTES, _CLONE_NEWNET = 1514, 0x40000000


def enter() -> str:
    """Go on in a network namespace of our own, where all others are made; returns why that cannot be."""
    if _INSIDE in os.environ:
        do("ip", "link", "set", "dev", "lo", "up")
        return ""
    unshare = ["unshare", "--net"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "--net"]
    missing = [tool for tool in ("unshare", "ip", "tc") if shutil.which(tool) is None]
    if missing:
        return f"this machine has no {missing[0]}"
    environment = os.environ | {"LIMITS": " ".join(_limits("3mbit"))}
    tried = subprocess.run([*unshare, "sh", "-ec", _TRY], capture_output=True, text=True, env=environment)
    if tried.returncode:
        return " ".join(tried.stderr.split()) or "unshare failed"
    os.environ[_INSIDE] = "1"
    return os.execvp(unshare[0], [*unshare, sys.executable, *sys.argv])


def usual_tcp() -> str:
    """What controls congestion on this machine, where nobody says otherwise."""
    return _TCP.read_text().strip()


def do(*words: object) -> None:
    """Run a command; raises RuntimeError with its own words."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")


def host(index: int) -> str:
    return f"10.0.0.{index + 1}"


def shape_own(rate: str, tcp: str) -> None:
    """From a namespace: hold what is sent from here to `rate`; `tcp` is to control congestion."""
    _TCP.write_text(tcp)
    _shape("cable", rate)
    bundle = max(1, int(parse_rate(rate) * _BUNDLE_S) // _PACKET_BYTES)
    do("ip", "link", "set", "dev", "cable", "gso_max_segs", bundle)


def round_trip_s(address: str) -> float:
    """What a TCP connection takes to be made: there and back again, and no program has a part in it."""
    host, port = address.removeprefix("tcp://").rsplit(":", 1)
    times = []
    for _ in range(9):
        began = time.perf_counter()
        socket.create_connection((host, int(port))).close()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


class Town(Room):
    """So many processes, each in its namespace; `ends` ends them."""

    def __init__(self, ends: ExitStack, count: int, inhabitant: Inhabitant) -> None:
        do("ip", "link", "add", "bridge", "type", "bridge")
        do("ip", "link", "set", "dev", "bridge", "up")
        ends.callback(do, "ip", "link", "del", "bridge")
        super().__init__(ends, count, partial(_settle, inhabitant))
        for process in self.processes:
            ends.callback(process.join)
            ends.callback(process.kill)
        self.hear()
        for index, process in enumerate(self.processes):
            port = f"port{index}"
            do("ip", "link", "add", port, "type", "veth", "peer", "name", "cable", "netns", process.pid)
            do("ip", "link", "set", "dev", port, "master", "bridge", "up")
        self.tell("connected")

    def shape(self, rate: str, which: Iterable[int] | None = None) -> None:
        """Hold what each of these (None: of all) receives to `rate`; what it sends is its own to shape."""
        for index in range(len(self.processes)) if which is None else which:
            _shape(f"port{index}", rate)


def _settle(inhabitant: Inhabitant, index: int, line: Connection) -> None:
    """Live in a namespace of one's own, once it has a cable."""
    _ahead_of_others()
    if ctypes.CDLL(None).unshare(_CLONE_NEWNET):  # os.unshare came with Python 3.12
        raise RuntimeError("unshare() failed")
    line.send("alone")
    line.recv()
    do("ip", "address", "add", f"{host(index)}/24", "dev", "cable")
    for device in ("lo", "cable"):
        do("ip", "link", "set", "dev", device, "up")
    inhabitant(index, line)


def _ahead_of_others() -> None:
    """What else this machine is busy with is not to be measured. Linux shares its time out among sessions before it
    looks at niceness (autogroup), so this needs one of its own."""
    os.setsid()
    with contextlib.suppress(OSError):
        os.nice(-15)
        Path("/proc/self/autogroup").write_text("-15")


def _limits(rate: str) -> list[str]:
    """tbf's parameters for a link of `rate`."""
    burst, queue = (int(parse_rate(rate) * seconds) + 2 * _PACKET_BYTES for seconds in (LATE_S, QUEUE_S))
    return ["rate", rate, "burst", str(burst), "limit", str(burst + queue)]


def _shape(device: str, rate: str) -> None:
    do("tc", "qdisc", "replace", "dev", device, "root", "tbf", *_limits(rate))
