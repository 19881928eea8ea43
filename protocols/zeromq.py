"""The real transport: one ROUTER inbox a peer, one DEALER for each out-link, CURVE on every connection.

Sockets are synchronous and drained in bulk from the loop's reader callback (`zmq.asyncio` costs a Future, an FD read
and a timer a message). Settings carry the trap they avoid as Z-numbers, explained in docs/zeromq.md.
"""

from __future__ import annotations

import asyncio
import errno
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from .addresses import advertised, split_address
from .transport import Arrivals, PeerId, wire_bytes
from .wire import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX, Buffer

_DOMAIN = b"samovar"
_DRAIN_MAX = 128
_BACKLOG_MAX = 8192
_WATCHDOG_S = 0.25
_ZERO_COPY_BYTES = 64 * 1024
_LINGER_MS = 300


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in hexadecimal, 64 characters each. The public half is the peer's id."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> KeyPair:
        public, secret = zmq.curve_keypair()
        return cls(z85.decode(public).hex(), z85.decode(secret).hex())

    @classmethod
    def of_secret(cls, secret: str) -> KeyPair:
        """Raises ValueError when `secret` is no CURVE key."""
        if len(secret) != 64:
            raise ValueError(f"a key has 64 hexadecimal characters, this one has {len(secret)}")
        return cls(z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex(), secret)


def versions() -> str:
    """What carries our bytes, for people who look for the reason of something."""
    return f"pyzmq {zmq.pyzmq_version()}, libzmq {zmq.zmq_version()}, CURVE: {'yes' if zmq.has('curve') else 'no'}"


@dataclass(slots=True)
class _OutLink:
    address: str
    socket: zmq.Socket[bytes]
    monitor: zmq.Socket[bytes]
    backlog: deque[tuple[bytes, Buffer]] = field(default_factory=deque)
    trouble: str | None = None


class ZeroMQTransport:
    """`keys` None means insecure: no encryption, and peers are whoever they say they are."""

    def __init__(self, keys: KeyPair | None, *, listen: str = "tcp://*:0", advertise: str | None = None) -> None:
        """`listen`: where the inbox binds; port 0 takes a free one. `advertise`: the host others should dial."""
        self._keys = keys
        self._id = keys.public if keys else secrets.token_hex(16)
        self._listen, self._advertise = listen, advertise
        self._address = listen
        self._admitted: set[PeerId] = set()
        self._routes: dict[PeerId, bytes] = {}
        self._out: dict[PeerId, _OutLink] = {}

    @property
    def id(self) -> PeerId:
        return self._id

    @property
    def address(self) -> str:
        return self._address

    @property
    def encrypted(self) -> bool:
        return self._keys is not None

    def open(self, arrivals: Arrivals) -> None:
        """Raises OSError naming the address and what to do when it cannot be bound."""
        self._arrivals = arrivals
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._context.max_sockets = 16384
        if self._keys is not None:
            self._zap = self._context.socket(zmq.REP)
            self._zap.bind("inproc://zeromq.zap.01")
            self._watch(self._zap, self._answer_zap)
        self._inbox = self._socket(zmq.ROUTER)
        # Z2: an unreachable peer is an error, not silence. Z9: nobody takes over somebody else's route.
        self._inbox.router_mandatory, self._inbox.router_handover, self._inbox.backlog = 1, 0, 4096
        if self._keys is not None:
            # Z14: without a ZAP domain that is enforced CURVE lets every key in.
            self._inbox.curve_server, self._inbox.zap_domain = 1, _DOMAIN
            self._inbox.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        self._bind()
        self._watch(self._inbox, self._drain_inbox)
        self._watchdog = self._loop.call_later(_WATCHDOG_S, self._watch_over)

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        # Z4, Z5: bound each frame. Z6, Z7: no ZMTP heartbeats, they cut slow big frames; `Pulse` is ours.
        socket.maxmsgsize = max(PAYLOAD_BYTES_MAX, HEADER_BYTES_MAX) + 4096
        socket.linger = 0  # Z10
        socket.sndhwm = socket.rcvhwm = 1000  # never met: credit in bytes is far below it
        socket.immediate = 1  # Z25: nothing is queued for a peer that never answered
        socket.handshake_ivl = 5000  # Z26: a silent raw connection is closed after this
        socket.reconnect_ivl, socket.reconnect_ivl_max = 200, 30_000  # Z18
        if "[" in self._listen:
            socket.ipv6 = 1
        if self._keys is not None:
            socket.curve_publickey = bytes.fromhex(self._keys.public)
            socket.curve_secretkey = bytes.fromhex(self._keys.secret)
        return socket

    def _bind(self) -> None:
        host, port = split_address(self._listen)
        try:
            self._inbox.bind(f"tcp://{host}:{port or '*'}")
        except zmq.ZMQError as error:
            self.close()
            reasons = {errno.EADDRINUSE: "the port is in use", errno.ENODEV: "this machine has no such address"}
            why = reasons.get(error.errno or 0, str(error))
            raise OSError(f"cannot listen on {self._listen}: {why}; choose another with --listen") from None
        bound = self._inbox.last_endpoint.decode().rstrip("\0")
        self._address = f"tcp://{self._advertise or advertised(host)}:{split_address(bound)[1]}"

    async def self_test(self) -> None:
        """Prove that an unknown key is refused: RuntimeError if it gets in, as then nothing here is safe (Z14)."""
        if self._keys is None:
            return
        stranger, bound = self._context.socket(zmq.DEALER), self._inbox.last_endpoint.decode().rstrip("\0")
        keys = KeyPair.new()
        stranger.linger = 0
        stranger.curve_publickey, stranger.curve_secretkey = bytes.fromhex(keys.public), bytes.fromhex(keys.secret)
        stranger.curve_serverkey = bytes.fromhex(self._keys.public)
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        verdict: asyncio.Future[int] = self._loop.create_future()

        def look() -> None:
            while monitor.events & zmq.POLLIN and not verdict.done():
                verdict.set_result(int(parse_monitor_message(monitor.recv_multipart())["event"]))

        self._watch(monitor, look)
        try:
            stranger.connect(bound.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]"))
            async with asyncio.timeout(10):
                event = await verdict
        except TimeoutError:
            raise RuntimeError(f"self-test: {self._address} did not answer a stranger's handshake in 10 s") from None
        finally:
            self._loop.remove_reader(monitor.fd)
            stranger.disable_monitor()
            monitor.close(linger=0)
            stranger.close(linger=0)
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            raise RuntimeError(f"self-test: {self._address} let an unknown key in; refusing to start")

    def _answer_zap(self) -> None:
        while self._zap.events & zmq.POLLIN:
            version, request, domain, _, _, mechanism, *credentials = self._zap.recv_multipart()
            user = credentials[0].hex() if len(credentials) == 1 else ""
            known = mechanism == b"CURVE" and domain == _DOMAIN and user in self._admitted
            verdict = (b"200", b"OK", user.encode()) if known else (b"400", b"unknown key", b"")
            self._zap.send_multipart([version, request, *verdict, b""])

    def admit(self, peer: PeerId) -> None:
        self._admitted.add(peer)

    def dial(self, peer: PeerId, address: str) -> None:
        known = self._out.get(peer)
        if known is not None and known.address == address:
            return
        self.hang_up(peer)
        socket = self._socket(zmq.DEALER)
        if self._keys is not None:
            socket.curve_serverkey = bytes.fromhex(peer)
        else:
            # Z8: a name that was used before a crash may still be held by the old connection.
            socket.routing_id = f"{self._id}/{secrets.token_hex(4)}".encode()
        link = _OutLink(address, socket, socket.get_monitor_socket(zmq.EVENT_ALL))
        self._out[peer] = link
        self._watch(link.monitor, lambda: self._take_events(peer, link))
        self._watch(socket, lambda: self._drain_out(peer, link))
        socket.connect(address)

    def trouble(self, peer: PeerId) -> str | None:
        """Why the connection to `peer` does not work, if it does not."""
        link = self._out.get(peer)
        return None if link is None or link.trouble is None else f"{link.trouble} at {link.address}"

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        link = self._out.get(peer)
        if link is not None:
            if link.backlog or not self._send(link.socket, [header, payload]):
                if len(link.backlog) < _BACKLOG_MAX:  # beyond it the link will find the gap and post again
                    link.backlog.append((header, payload))
            elif link.socket.events & zmq.POLLIN:  # Z11: a send may swallow the wake-up for a message
                self._loop.call_soon(self._drain_out, peer, link)
        elif peer in self._routes:  # it called us, but we cannot call it: answer on its own connection
            self._send(self._inbox, [self._routes[peer], header, payload])
        return wire_bytes(len(header), len(payload), encrypted=self.encrypted)

    @staticmethod
    def _send(socket: zmq.Socket[bytes], frames: list[Buffer]) -> bool:
        try:
            for frame in frames[:-1]:
                socket.send(frame, zmq.NOBLOCK | zmq.SNDMORE)
            socket.send(frames[-1], zmq.NOBLOCK, copy=len(frames[-1]) < _ZERO_COPY_BYTES)  # Z22
        except zmq.Again:
            return False
        except zmq.ZMQError as error:
            if error.errno != errno.EHOSTUNREACH:
                raise
            return False
        return True

    def _drain_out(self, peer: PeerId, link: _OutLink) -> None:
        if self._out.get(peer) is not link:
            return
        while link.backlog and self._send(link.socket, list(link.backlog[0])):
            link.backlog.popleft()
        self._drain(link.socket, lambda frames: self._take(peer, frames), lambda: self._drain_out(peer, link))

    def _drain_inbox(self) -> None:
        def take(frames: list[zmq.Frame]) -> None:
            route = frames[0].bytes
            if self._keys is not None:
                sender = str(frames[0].get("User-Id"))  # Z15: who it is comes from its key, not from the route
            else:
                sender = route.partition(b"/")[0].decode("ascii", "replace")
            self._routes[sender] = route
            self._take(sender, frames[1:])

        self._drain(self._inbox, take, self._drain_inbox)

    def _drain(
        self, socket: zmq.Socket[bytes], take: Callable[[list[zmq.Frame]], None], again: Callable[[], None]
    ) -> None:
        for _ in range(_DRAIN_MAX):
            if socket.closed:
                return
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return
            take(frames)
        self._loop.call_soon(again)

    def _take(self, sender: PeerId, frames: list[zmq.Frame]) -> None:
        if len(frames) != 2:
            self._arrivals.garbage(sender, f"sent a message of {len(frames)} frames, two are due")
            return
        header, payload = (
            frame.buffer if len(frame) >= _ZERO_COPY_BYTES else frame.bytes  # Z23: small ones pin an arena
            for frame in frames
        )
        size = wire_bytes(len(header), len(payload), encrypted=self.encrypted)
        self._arrivals.frames(sender, header, payload, size)

    def _take_events(self, peer: PeerId, link: _OutLink) -> None:
        while not link.monitor.closed and link.monitor.events & zmq.POLLIN:
            event = parse_monitor_message(link.monitor.recv_multipart())["event"]
            if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                link.trouble = None
                self._arrivals.reconnected(peer)
                self._drain_out(peer, link)
            elif event == zmq.EVENT_HANDSHAKE_FAILED_AUTH:
                link.trouble = "it refused our key"
            elif event in (zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL):
                link.trouble = "the handshake failed (is its key right, and does it encrypt as we do?)"
            elif event in (zmq.EVENT_CLOSED, zmq.EVENT_CONNECT_RETRIED):
                link.trouble = link.trouble or "nobody listens"
            elif event == zmq.EVENT_DISCONNECTED:
                link.trouble = link.trouble or "it closed the connection"

    def _watch(self, socket: zmq.Socket[bytes], drain: Callable[[], None]) -> None:
        self._loop.add_reader(socket.fd, drain)
        self._loop.call_soon(drain)  # the FD is edge-triggered: what came before is not told again

    def _watch_over(self) -> None:
        """Z11: look once in a while even if the edge was missed."""
        self._drain_inbox()
        for peer, link in list(self._out.items()):
            self._drain_out(peer, link)
            self._take_events(peer, link)
        self._watchdog = self._loop.call_later(_WATCHDOG_S, self._watch_over)

    def hang_up(self, peer: PeerId) -> None:
        self._routes.pop(peer, None)
        link = self._out.pop(peer, None)
        if link is not None:
            self._shut(link, linger_ms=0)

    def _shut(self, link: _OutLink, *, linger_ms: int) -> None:
        self._loop.remove_reader(link.socket.fd)
        self._loop.remove_reader(link.monitor.fd)
        link.socket.disable_monitor()
        link.monitor.close(linger=0)
        link.socket.close(linger=linger_ms)

    def close(self) -> None:
        """Last acknowledgements get a moment to leave; everything else was drained by the endpoint."""
        if hasattr(self, "_watchdog"):
            self._watchdog.cancel()
        for link in self._out.values():
            self._shut(link, linger_ms=_LINGER_MS)
        self._out.clear()
        for socket in (getattr(self, "_inbox", None), getattr(self, "_zap", None)):
            if socket is not None and not socket.closed:
                self._loop.remove_reader(socket.fd)
                socket.close(linger=0)
        self._context.term()
