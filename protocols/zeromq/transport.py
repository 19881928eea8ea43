"""The transport between real processes: one ROUTER inbox per peer, one DEALER for each out-link, CURVE on every
connection.

Sockets are synchronous and drained in bulk from the loop's reader callback (`zmq.asyncio` costs a Future, an FD read
and a timer per message). Z-numbers name the pitfalls of libzmq that settings avoid, explained in docs/zeromq.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import zmq
from zmq.utils import z85
from zmq.utils.monitor import parse_monitor_message

from ..addresses import NOWHERE, dialable, own_way
from ..announcement import announcement
from ..shared_memory.machine import machine
from ..transport import Arrivals, PeerId, Pipes, wire_bytes
from ..wire.frames import Buffer
from .gate import backlog
from .listener import Listener
from .options import OPTIONS
from .reader import Arrived, Tap
from .redial import PAUSE_MAX_S, Redial
from .routes import AWAITED, Change, OutLink, Ways, new_route
from .sockets import Socket
from .zap import verdict

_DOMAIN = b"samovar"
_WATCHDOG_S, _SELF_TEST_S, _LINGER_MS = 1.0, 10.0, 300
_AWAITED_PAUSE_MAX_S = 5.0
"""The longest pause, in seconds, between the attempts of a peer that cannot be dialled to connect: others wait for
them."""

_CHANGES: dict[int, Change] = {
    zmq.EVENT_CONNECTED: Change.REACHED,
    zmq.EVENT_HANDSHAKE_SUCCEEDED: Change.CONNECTED,
    zmq.EVENT_HANDSHAKE_FAILED_AUTH: Change.REFUSED,
    zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL: Change.FAILED,
    zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL: Change.FAILED,
    zmq.EVENT_CLOSED: Change.UNREACHED,
    zmq.EVENT_DISCONNECTED: Change.CLOSED,
}


@dataclass(frozen=True, slots=True)
class KeyPair:
    """A CURVE key pair in hexadecimal, 64 characters each. The public half is the peer's id."""

    public: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> KeyPair:
        """A new random key pair."""
        public, secret = zmq.curve_keypair()
        return cls(z85.decode(public).hex(), z85.decode(secret).hex())

    @classmethod
    def of_secret(cls, secret: str) -> KeyPair:
        """The key pair with the secret half `secret`. Raises ValueError when that is no CURVE key."""
        if len(secret) != 64:
            raise ValueError(f"a key has 64 hexadecimal characters, this one has {len(secret)}")
        return cls(z85.decode(zmq.curve_public(z85.encode(bytes.fromhex(secret)))).hex(), secret)


def versions() -> str:
    """The versions of pyzmq and libzmq, and whether it has CURVE, as a text for diagnosis."""
    return f"pyzmq {zmq.pyzmq_version()}, libzmq {zmq.zmq_version()}, CURVE: {'yes' if zmq.has('curve') else 'no'}"


class ZeroMQTransport:
    """The port of transports (`protocols.transport`) by ZeroMQ sockets. `keys`: this peer's key pair; None: insecure,
    which means that nothing is encrypted, any peer may connect, and a peer's claimed id is not verified."""

    budget = None

    def __init__(self, keys: KeyPair | None, *, listen: str = "tcp://*:0", advertise: str | None = None) -> None:
        """`listen`: the address to which the inbox is bound; port 0 takes a free one; `NOWHERE`: this peer cannot be
        dialled. `advertise`: the host that others dial; None: one of this machine's addresses."""
        self._keys, self.encrypted = keys, keys is not None
        self.id = keys.public if keys else secrets.token_hex(16)
        self._listener, self.machine = Listener(listen, advertise), machine()
        self._admitted, self._shared = set[PeerId](), set[PeerId]()
        self._taps: list[Tap] = []
        self._context: zmq.Context[zmq.Socket[bytes]] | None = None
        self._watchdog: asyncio.TimerHandle | None = None

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def pipes(self) -> Pipes | None:
        return self._listener.pipes

    def open(self, arrivals: Arrivals) -> None:
        """Open the sockets. Raises OSError, with the address and advice, when the inbox cannot be bound."""
        self._arrivals, self._loop = arrivals, asyncio.get_running_loop()
        self._context = zmq.Context()
        self._context.max_sockets = 1 << 16
        inbox = self._inbox_socket = self._socket(zmq.ROUTER, self._keys, self._listener.bound)
        self._inbox = self._tap(inbox, self._take_call, tells_origin=True)
        admitted = self._admitted if self.encrypted else None
        announced = None if self.pipes is None else announcement()
        self._ways = Ways(self._inbox, arrivals.reconnected, self._shared, admitted, announced)
        # Z2: an unreachable peer is an error, not silence. Z9: no peer takes over another's route, unless a route is
        # all that identifies a peer: then a peer that reconnects must get past its dead connection (Z8).
        inbox.router_mandatory, inbox.router_handover, inbox.backlog = 1, int(not self.encrypted), backlog()
        if self.encrypted:
            doorman = self._context.socket(zmq.REP)
            doorman.bind("inproc://zeromq.zap.01")
            zap = self._tap(doorman, lambda asked: zap.send(verdict(asked.frames, _DOMAIN, self._admitted)))
            # Z14: without an enforced ZAP domain, CURVE lets every key in.
            inbox.curve_server, inbox.zap_domain = 1, _DOMAIN
            inbox.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)
        try:
            self._listener.open(self._bind)
        except OSError:
            self.close()
            raise
        self._watchdog = self._loop.call_later(_WATCHDOG_S, self._watch_over)

    def _bind(self, address: str) -> str:
        try:
            self._inbox_socket.bind(address)
        except zmq.ZMQError as error:
            raise OSError(error.errno, str(error)) from None
        return self._inbox_socket.getsockopt_string(zmq.LAST_ENDPOINT).rstrip("\0")

    def _tap(self, socket: zmq.Socket[bytes], take: Callable[[Arrived], object], *, tells_origin: bool = False) -> Tap:
        tap = Tap(self._loop, Socket(socket, tells_origin=tells_origin), take)
        self._taps.append(tap)
        return tap

    def _socket(self, kind: int, keys: KeyPair | None, address: str) -> zmq.Socket[bytes]:
        assert self._context is not None, "open() the transport first"
        socket = self._context.socket(kind)
        for option, value in OPTIONS.items():
            setattr(socket, option, value)
        socket.ipv6 = int("[" in address)
        if keys is not None:
            socket.curve_publickey, socket.curve_secretkey = bytes.fromhex(keys.public), bytes.fromhex(keys.secret)
        return socket

    def reaches(self, peer: PeerId) -> bool:
        return self._ways.reaches(peer)

    async def self_test(self) -> None:
        """Prove that an unknown key is refused. Raises RuntimeError if it is not (then no connection would be safe,
        Z14), or if there is no answer in time. Does nothing where connections are not encrypted."""
        if self._keys is None:
            return
        said: asyncio.Queue[Change] = asyncio.Queue()
        stranger = self._socket(zmq.DEALER, KeyPair.new(), self._listener.bound)
        stranger.curve_serverkey, stranger.reconnect_ivl = bytes.fromhex(self._keys.public), 200
        monitor = stranger.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_HANDSHAKE_FAILED_AUTH)
        taps = [self._tap(stranger, lambda arrived: None)]
        taps.append(self._tap(monitor, lambda told: said.put_nowait(_change(told))))
        try:
            stranger.connect(own_way(self._listener.bound))
            async with asyncio.timeout(_SELF_TEST_S):
                event = await said.get()
        except TimeoutError:
            why = f"self-test: {self.address} did not answer a stranger's handshake in {_SELF_TEST_S:g} s"
            raise RuntimeError(why) from None
        finally:
            for tap in taps:
                tap.close()
        if event is Change.CONNECTED:
            raise RuntimeError(f"self-test: {self.address} let an unknown key in; refusing to start")

    def admit(self, peer: PeerId, *, shared: bool = False) -> None:
        self._admitted.add(peer)
        self._shared |= {peer} if shared else set()

    def dismiss(self, peer: PeerId) -> None:
        self._admitted.discard(peer)
        self._shared.discard(peer)
        self._ways.dismiss(peer)

    def dial(self, peer: PeerId, address: str) -> None:
        """Make an out-link to `peer` at `address`, in place of one at another address. If the address or the key cannot
        be used, or no descriptor is left, `trouble` tells so; `peer` may still connect to this one."""
        if self._ways.address(peer) == address:
            return
        self._ways.hang_up_out(peer)
        if address == NOWHERE and self._listener.pipes is None:
            self._ways.undialable(peer, AWAITED)
            return
        with contextlib.ExitStack() as made:
            try:
                link = self._out_link(peer, address, made)
            except (ValueError, OSError, zmq.ZMQError) as error:
                self._ways.undialable(peer, f"{error} ({address!r:.80})")
                return
            made.pop_all()
        self._ways.add(peer, link)

    def _out_link(self, peer: PeerId, address: str, made: contextlib.ExitStack) -> OutLink:
        """A new out-link to `peer`. Functions that close what has been made are added to `made`, for the case that this
        fails. Raises ValueError, OSError, ZMQError."""
        socket, doorstep = self._socket(zmq.DEALER, self._keys, address), None
        made.callback(Socket(socket).close, 0)
        monitor = socket.get_monitor_socket(sum(_CHANGES))
        made.callback(Socket(monitor).close, 0)
        if self.encrypted:
            socket.curve_serverkey = bytes.fromhex(peer)
        else:
            socket.routing_id = new_route(self.id)
        if address == NOWHERE and self._listener.pipes is not None:
            doorstep = self._listener.pipes.doorstep(peer)
            made.callback(doorstep.close)
        else:
            socket.connect(dialable(address))
        at = address if doorstep is None else doorstep.address
        link = OutLink(
            address,
            Tap(self._loop, Socket(socket), lambda arrived: self._take(peer, *arrived[:2]), hold=True),
            Tap(self._loop, Socket(monitor), lambda told: self._ways.changed(peer, link, _change(told))),
            Redial(
                self._loop,
                lambda: _connect_anew(socket, at),
                pause_max_s=PAUSE_MAX_S if self.pipes is None else _AWAITED_PAUSE_MAX_S,
                asleep=doorstep is not None,
            ),
            doorstep,
        )
        return link

    def trouble(self, peer: PeerId) -> str | None:
        return self._ways.trouble(peer)

    def whence(self, peer: PeerId) -> str:
        return self._ways.whence(peer) if self.pipes is None else self._ways.address(peer) or ""  # pipes come from here

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        return self._size(peer, header, payload) if self._ways.post(peer, header, payload) else 0

    def _size(self, peer: PeerId, header: Buffer, payload: Buffer) -> int:
        """Bytes that these frames take on the wire; 0 if they go through a pipe, where the relay's pieces are
        counted."""
        if self._listener.pipes is not None and self._ways.address(peer) in (None, NOWHERE):
            return 0
        return wire_bytes(len(header), len(payload), encrypted=self.encrypted)

    def _take_call(self, arrived: Arrived) -> None:
        frames = arrived.frames
        assert arrived.origin is not None, "the inbox tells it"
        if (sender := self._ways.caller(bytes(frames[0]), arrived.origin)) is not None:
            self._take(sender, frames[1:], arrived.total - 1)

    def _take(self, sender: PeerId, frames: Sequence[Buffer], total: int) -> None:
        """Pass on a message of `total` frames, of which the first few are given."""
        if total != 2:
            self._arrivals.garbage(sender, f"sent a message of {total} frames, two are due")
            return
        header, payload = frames
        self._arrivals.frames(sender, header, payload, self._size(sender, header, payload))

    def _watch_over(self) -> None:
        """Serve all sockets once a second, in case an event of a descriptor was missed (Z11)."""
        self._watchdog = self._loop.call_later(_WATCHDOG_S, self._watch_over)
        for tap in (*self._taps, *(tap for link in self._ways for tap in (link.tap, link.monitor))):
            tap.serve()

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        self._ways.hang_up(peer, call=call)

    def close(self) -> None:
        """Close all sockets. The last acknowledgements get 0.3 s to leave; the endpoint has drained everything else."""
        if self._context is None or self._context.closed:
            return
        if self._watchdog is not None:
            self._watchdog.cancel()
        self._ways.close(_LINGER_MS)
        self._listener.close()
        for tap in self._taps:
            tap.close()
        self._context.destroy()


def _connect_anew(socket: zmq.Socket[bytes], address: str) -> None:
    with contextlib.suppress(zmq.ZMQError):  # libzmq may have forgotten the address; if not, connect() does nothing
        socket.disconnect(address)
    socket.connect(address)


def _change(arrived: Arrived) -> Change:
    told = parse_monitor_message([bytes(frame) for frame in arrived.frames])
    event, value = told["event"], told["value"]
    silent = event == zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL and value == errno.EAGAIN  # Z26: nothing came in time
    return Change.SILENT if silent else _CHANGES[event]
