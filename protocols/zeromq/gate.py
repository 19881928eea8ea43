"""The gate: connections are accepted only while enough file descriptors are free.

Each connection takes a descriptor, even that of a silent stranger, until its handshake times out. When none is left,
libzmq spins, and this process can open no file (Z19). So some descriptors are held in reserve. When few are left beside
these the gate is shut: a filter at the listening socket drops the packets that would begin a connection, connections
that wait there are closed, and the reserve is released to the files of this process. The gate opens when the reserve
can be held again. Existing connections are not affected; peers that were turned away connect again later. Such filters
exist on Linux only; elsewhere, and where the limit on descriptors is very low, there is no gate.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import resource
import socket
import stat
import struct
import sys

from ..addresses import split_address

_BACKLOG_MIN, _BACKLOG_MAX, _BACKLOG_SHARE = 32, 1024, 16
_RESERVE_MAX, _SHARE = 64, 8
_LOOK_S = 0.25
_ATTACH_FILTER, _DETACH_FILTER = 26, 27
_DROP = ctypes.create_string_buffer(struct.pack("HBBI", 0x06, 0, 0, 0))  # one instruction: return 0, no byte of it
_PROGRAM = struct.pack("HP", 1, ctypes.addressof(_DROP))


def backlog() -> int:
    """The listening socket's backlog: the most connections that wait to be accepted, and hence the most that still come
    in after the gate is shut. A sixteenth of the limit on file descriptors, but from 32 to 1024. Beyond it the kernel
    makes a new connection wait for a second at least."""
    return max(_BACKLOG_MIN, min(_BACKLOG_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _BACKLOG_SHARE))


class Gate:
    """Shuts off new connections to the socket that listens at the address `bound`, while few file descriptors are free.
    libzmq accepts the connections, not this class. Does nothing where the system has no such filters (see above)."""

    def __init__(self, loop: asyncio.AbstractEventLoop, bound: str) -> None:
        self._loop, self._size = loop, min(_RESERVE_MAX, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // _SHARE)
        self._listening = _listening_at(bound) if sys.platform == "linux" and self._size >= _SHARE else None
        self._reserve: list[int] = []
        self.shut = False
        """Whether no connection is accepted now."""
        if self._listening is not None:
            self._hold(self._size)
            self._timer = loop.call_later(_LOOK_S, self._look_again)
            loop.add_reader(self._listening, self.look)

    def look(self) -> None:
        """Shut or open the gate, depending on how many descriptors are free. Called periodically, and for each waiting
        connection."""
        assert self._listening is not None
        spare = max(self._size // 2, backlog() - _BACKLOG_MIN)
        if not self.shut and not _are_free(spare):
            self._set_shut(True)
        elif self.shut and _are_free(len(self._missing) + 2 * spare):
            self._set_shut(False)
        if self.shut:
            self._turn_away()

    @property
    def _missing(self) -> range:
        """The descriptors that the reserve lacks, as a range of their count."""
        return range(self._size - len(self._reserve))

    def _set_shut(self, shut: bool) -> None:
        assert self._listening is not None
        try:
            self._listening.setsockopt(
                socket.SOL_SOCKET, *((_ATTACH_FILTER, _PROGRAM) if shut else (_DETACH_FILTER, 0))
            )
        except OSError:  # not allowed here
            return
        self.shut = shut
        if not shut:
            self._hold(len(self._missing))

    def _turn_away(self) -> None:
        """Close waiting connections, then release the reserve: before that, libzmq would use it to accept these."""
        assert self._listening is not None
        while True:
            try:
                self._listening.accept()[0].close()
            except BlockingIOError:
                break
            except OSError:  # no descriptor for it
                if not self._reserve:
                    return
                os.close(self._reserve.pop())
        while self._reserve:
            os.close(self._reserve.pop())

    def _hold(self, count: int) -> None:
        with contextlib.suppress(OSError):
            for _ in range(count):
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def _look_again(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._look_again)
        self.look()

    def close(self) -> None:
        """Release all descriptors. A second call does nothing."""
        if self._listening is not None:
            self._timer.cancel()
            self._loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        while self._reserve:
            os.close(self._reserve.pop())


def _are_free(count: int) -> bool:
    """Whether `count` more descriptors can be opened."""
    try:
        taken = len(os.listdir("/proc/self/fd")) - 1  # the listing takes one
    except OSError:  # no descriptor is left for the listing itself
        return False
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] - taken >= count


def _listening_at(bound: str) -> socket.socket | None:
    """A duplicate descriptor of the socket that listens at `bound`: libzmq does not expose its own."""
    host, port = split_address(bound)
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the descriptor is closed by now, or is no socket
            status = os.stat(int(name))
            if stat.S_ISSOCK(status.st_mode):
                one = socket.socket(fileno=os.dup(int(name)))
                listens = one.family != socket.AF_UNIX and one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
                if listens and one.getsockname()[:2] == (host.strip("[]"), port):
                    one.setblocking(False)
                    return one
                one.close()
    return None
