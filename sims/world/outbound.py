"""The simulated transport of a peer that cannot be dialled."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable

from ...protocols.addresses import NOWHERE
from ...protocols.announcement import announcement
from ...protocols.pipes import Pipe, PipeUser
from ...protocols.transport import Arrivals, PeerId
from ...protocols.wire.frames import Buffer
from .network import Network
from .pipes import MemoryPipe
from .transport import SimulatedTransport

_LOOK_S, _PAUSE_MIN_S, _PAUSE_MAX_S = 0.5, 0.2, 5.0
_SIZES = struct.Struct(">II")


class MemoryPipes:
    """The pipes of one simulated transport, by which relays carry its frames to other peers that cannot be dialled, and
    theirs to it (`protocols.transport.Pipes`). When an inlet is asked for, a pipe is made, and `called` is called with
    the end that the transport keeps."""

    def __init__(self, called: Callable[[Pipe], None]) -> None:
        self.wanted: Callable[[PeerId, Pipe], None] = lambda peer, pipe: pipe.close()
        self._called = called

    def inlet(self) -> Pipe:
        near, far = MemoryPipe.pair()
        self._called(near)
        return far


class _Talk:
    """The transport's end of a pipe to `peer`. "": the other end has opened the pipe and has not told its name yet.
    Through the pipe go first the name of the peer that opened it, and then pairs of frames, each pair as two sizes and
    the bytes."""

    def __init__(self, peer: PeerId, pipe: Pipe, transport: OutboundTransport) -> None:
        self.peer, self.pipe, self._transport = peer, pipe, transport
        self._came = bytearray()
        pipe.begin(PipeUser(self._arrived, lambda: None, lambda: transport.broken(self)))

    def say(self, one: Buffer, other: Buffer) -> None:
        self.pipe.write(b"".join((_SIZES.pack(len(one), len(other)), one, other)))

    def _arrived(self, data: bytes) -> None:
        self._came += data
        while len(self._came) >= _SIZES.size:
            one, other = _SIZES.unpack_from(self._came)
            end = _SIZES.size + one + other
            if len(self._came) < end:
                return
            header, payload = bytes(self._came[_SIZES.size : end - other]), bytes(self._came[end - other : end])
            del self._came[:end]
            if self.peer:
                self._transport.heard(self.peer, header, payload)
            elif not self._transport.met(self, header.decode()):
                return


class OutboundTransport(SimulatedTransport):
    """The transport of a peer in `Doors.outbound`, which cannot be dialled. It keeps a connection to each peer that
    it has dialled, and connects again when that is broken. It reaches another peer that cannot be dialled through a
    pipe."""

    pipes: MemoryPipes

    def __init__(self, network: Network, id: PeerId) -> None:
        super().__init__(network, id)
        self.pipes = MemoryPipes(lambda pipe: self._open.add(_Talk("", pipe, self)))
        self._open = set[_Talk]()
        self._talks: dict[PeerId, _Talk] = {}
        """For each peer: the latest of the open pipes to it."""
        self._calling: dict[PeerId, asyncio.TimerHandle] = {}
        """For each peer that was dialled: the timer of the next check of its connection."""
        self._pauses_s: dict[PeerId, float] = {}
        """For each peer to which a pipe has ended: the pause before the next one is opened. It is forgotten when frames
        come through a pipe."""
        self._resting = set[PeerId]()
        self._arrivals: Arrivals | None = None

    @property
    def address(self) -> str:
        return NOWHERE

    def open(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        super().open(arrivals)

    def dial(self, peer: PeerId, address: str) -> None:
        if address != NOWHERE and peer not in self._calling:
            self._look(peer, _PAUSE_MIN_S, joined=False)

    def _look(self, peer: PeerId, pause_s: float, *, joined: bool) -> None:
        """Check whether there is a connection to `peer`, and connect if there is none. `joined`: whether there was one
        at the last check."""
        if self._arrivals is None:
            return
        before, joined = joined, self._network.joined(self._id, peer)
        if not joined:
            self._network.carry(self._id, peer, announcement(), b"")
        elif not before:
            self._arrivals.reconnected(peer)
        next_s = _LOOK_S if joined else pause_s
        pause_s = _PAUSE_MIN_S if joined else min(2 * pause_s, _PAUSE_MAX_S)
        loop = asyncio.get_running_loop()
        self._calling[peer] = loop.call_later(next_s, lambda: self._look(peer, pause_s, joined=joined))

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        if peer in self._calling:
            return super().post(peer, header, payload)
        known = self._arrivals is not None and not self._network.can_be_dialled(peer)
        if known and (talk := self._talk(peer)) is not None:
            talk.say(header, payload)
        return 0

    def reaches(self, peer: PeerId) -> bool:
        return self._network.joined(self._id, peer)

    def trouble(self, peer: PeerId) -> str | None:
        there = peer not in self._calling or self._network.joined(self._id, peer)
        return None if there else "there is no connection to it"

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None:
        if (timer := self._calling.pop(peer, None)) is not None:
            timer.cancel()
            self._network.doors.hang_up(self._id, peer)
        for talk in [talk for talk in self._open if talk.peer == peer]:
            self._end(talk)

    def close(self) -> None:
        for timer in self._calling.values():
            timer.cancel()
        self._arrivals = None
        super().close()
        for talk in list(self._open):
            self._end(talk)

    # Through pipes

    def _talk(self, peer: PeerId) -> _Talk | None:
        """The open pipe to `peer`. None: the last one has just ended, and a new one is opened after a pause."""
        if peer in self._talks or peer in self._resting:
            return self._talks.get(peer)
        near, far = MemoryPipe.pair()
        talk = self._talks[peer] = _Talk(peer, near, self)
        self._open.add(talk)
        talk.say(self._id.encode(), b"")
        asyncio.get_running_loop().call_soon(self.pipes.wanted, peer, far)
        return talk

    def met(self, talk: _Talk, peer: PeerId) -> bool:
        """Note that the other end of the pipe of `talk` has sent its name, `peer`. Returns whether `peer` is admitted;
        if not, the pipe is closed."""
        if not self._network.doors.lets_in(self._id, peer):
            self._end(talk)
            return False
        talk.peer, self._talks[peer] = peer, talk
        if self._arrivals is not None:
            self._arrivals.reconnected(peer)
        return True

    def heard(self, peer: PeerId, header: bytes, payload: bytes) -> None:
        """Deliver the message of `peer`, in two frames, that has come through a pipe; drop it if `peer` is not
        admitted."""
        self._pauses_s.pop(peer, None)
        if self._arrivals is not None and self._network.doors.lets_in(self._id, peer):
            self._arrivals.frames(peer, header, payload, 0)

    def broken(self, talk: _Talk) -> None:
        """Handle the end of a pipe whose other end was closed. If it was the latest one to its peer, a new one may be
        opened after a pause, and the endpoint is told so then."""
        last = self._talks.get(talk.peer) is talk
        self._end(talk)
        if last and self._arrivals is not None:
            pause_s = self._pauses_s.get(talk.peer, _PAUSE_MIN_S)
            self._pauses_s[talk.peer] = min(2 * pause_s, _PAUSE_MAX_S)
            self._resting.add(talk.peer)
            asyncio.get_running_loop().call_later(pause_s, self._rested, talk.peer)

    def _rested(self, peer: PeerId) -> None:
        self._resting.discard(peer)
        if self._arrivals is not None:
            self._arrivals.reconnected(peer)

    def _end(self, talk: _Talk) -> None:
        self._open.discard(talk)
        if self._talks.get(talk.peer) is talk:
            del self._talks[talk.peer]
        talk.pipe.close()


def transport_of(network: Network, id: PeerId) -> SimulatedTransport:
    """The transport of a peer of `network`: an `OutboundTransport` for one that cannot be dialled."""
    return SimulatedTransport(network, id) if network.can_be_dialled(id) else OutboundTransport(network, id)
