"""Real transports under test, each with a record of what arrived; callers that speak raw ZeroMQ; a proxy in between."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
from collections import Counter
from typing import Any

import zmq
import zmq.asyncio
from zmq.utils.monitor import recv_monitor_message

from samovar.protocols.addresses import split_address
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.transport import Arrivals, PeerId
from samovar.protocols.wire.frames import Buffer
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport

LOCAL = "tcp://127.0.0.1:0"
SUCCEEDED = zmq.EVENT_HANDSHAKE_SUCCEEDED
FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH


def left() -> tuple[int, int, Counter[str], int]:
    """What this process holds: open files, threads, tasks, timers."""
    gc.collect()
    loop: Any = asyncio.get_running_loop()
    tasks = Counter(task.get_name() for task in asyncio.all_tasks())
    timers = sum(not handle.cancelled() for handle in loop._scheduled)
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), tasks, timers


def no_more_than(before: tuple[int, int, Counter[str], int]) -> bool:
    """Whether this process holds no more than `before`, when some of what was closed may still have been there."""
    return all(now <= then for now, then in zip(left(), before, strict=True))


class Station:
    """A transport and what arrived at it: frames as (sender, header, payload, bytes on the wire)."""

    def __init__(self, transport: ZeroMQTransport) -> None:
        self.transport = transport
        self.frames = asyncio.Queue[tuple[PeerId, Buffer, Buffer, int]]()
        self.reconnected = asyncio.Queue[PeerId]()
        self.garbage: list[tuple[PeerId, str]] = []
        transport.open(
            Arrivals(
                lambda *frame: self.frames.put_nowait(frame),
                self.reconnected.put_nowait,
                lambda *what: self.garbage.append(what),
            )
        )

    @property
    def id(self) -> PeerId:
        return self.transport.id

    @property
    def address(self) -> str:
        return self.transport.address

    def call(self, other: Station, address: str | None = None) -> None:
        """Dial `other`, who lets us in."""
        other.transport.admit(self.id)
        self.transport.dial(other.id, address or other.address)

    def say(self, to: Station, text: str) -> int:
        return self.transport.post(to.id, text.encode(), b"")

    async def heard(self) -> tuple[PeerId, str]:
        """The next message: who says what."""
        sender, header, *_ = await self.frames.get()
        return sender, bytes(header).decode()


class Caller:
    """A socket that says whatever it likes."""

    def __init__(self, context: zmq.asyncio.Context, to: Station | Endpoint, keys: KeyPair | None, name: str) -> None:
        self.key = keys.public if keys else ""
        self.socket = context.socket(zmq.DEALER)
        if keys:
            self.socket.curve_publickey = bytes.fromhex(keys.public)
            self.socket.curve_secretkey = bytes.fromhex(keys.secret)
            self.socket.curve_serverkey = bytes.fromhex(to.id)
        if name:
            self.socket.routing_id = name.encode()
        self._monitor = self.socket.get_monitor_socket()
        self.socket.connect(to.address)

    async def send(self, *frames: bytes) -> None:
        await self.socket.send_multipart(frames)

    async def event(self, *wanted: int) -> int:
        """The next of these to happen."""
        while not (event := (await recv_monitor_message(self._monitor))["event"]) & sum(wanted):
            pass
        return event

    def close(self) -> None:
        self.socket.disable_monitor()
        self._monitor.close()
        self.socket.close(0)


class Proxy:
    """Carries TCP connections to `target`, counting bytes; it can stand still, or carry only `rate_Bps`."""

    def __init__(self, target: str, rate_Bps: float | None = None) -> None:
        self.up = self.down = 0
        self.flowing = asyncio.Event()
        self.flowing.set()
        self._target, self._rate_Bps = split_address(target), rate_Bps
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> str:
        """Its address."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return f"tcp://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        far_in, far_out = await asyncio.open_connection(*self._target)
        for pump in (self._pump(near_in, far_out, up=True), self._pump(far_in, near_out, up=False)):
            task = asyncio.create_task(pump)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, *, up: bool) -> None:
        with contextlib.closing(sink), contextlib.suppress(ConnectionError):
            while data := await source.read(16 * 1024):
                await self.flowing.wait()
                if self._rate_Bps is not None:
                    await asyncio.sleep(len(data) / self._rate_Bps)
                sink.write(data)
                self.up, self.down = self.up + up * len(data), self.down + (not up) * len(data)
                await sink.drain()

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class Town:
    """Makes all of these, and ends them."""

    def __init__(self) -> None:
        self._context = zmq.asyncio.Context()
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Town:
        self._stack.callback(self._context.destroy, 0)
        return self

    async def __aexit__(self, *why: object) -> None:
        await self._stack.aclose()

    def station(self, keys: KeyPair | None = None, *, listen: str = LOCAL, insecure: bool = False) -> Station:
        station = Station(ZeroMQTransport(None if insecure else keys or KeyPair.new(), listen=listen))
        self._stack.callback(station.transport.close)
        return station

    async def endpoint(self, keys: KeyPair | None = None, *, patience_s: float = 20.0, listen: str = LOCAL) -> Endpoint:
        transport = ZeroMQTransport(keys or KeyPair.new(), listen=listen)
        endpoint = Endpoint(transport, patience_s=patience_s, rng=random.Random(transport.id))
        await endpoint.open()
        self._stack.callback(endpoint.abort)
        return endpoint

    def caller(self, to: Station | Endpoint, keys: KeyPair | None, *, name: str = "") -> Caller:
        caller = Caller(self._context, to, keys, name)
        self._stack.callback(caller.close)
        return caller

    async def proxy(self, target: str, rate_Bps: float | None = None) -> tuple[Proxy, str]:
        proxy = Proxy(target, rate_Bps)
        address = await proxy.open()
        self._stack.push_async_callback(proxy.close)
        return proxy, address
