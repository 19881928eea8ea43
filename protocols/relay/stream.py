"""One end of a stream, which a relay carries between two peers: it moves bytes between a pipe and the link to the
relay."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Channel
from ..link.link import PeerLost
from ..pipes import Pipe, PipeUser
from ..transport import PeerId
from ..wire.frames import Buffer, PeerMisbehaved
from .messages import PIECE_BYTES_MAX, WINDOW_BYTES, Over, Piece, Taken

_TELL_BYTES, _TELL_S = WINDOW_BYTES // 4, 0.02
"""The relay is told how much was taken, after this many bytes or this many seconds."""


def send(channel: Channel, to: PeerId, piece: Piece, data: Buffer) -> None:
    """Send `piece` with the payload `data` to the peer `to`, without waiting until it is sent. Raises PeerLost if the
    peer is lost already; a later failure is not reported."""
    posted = channel.offer(to, piece, data)
    if posted is not None:
        posted.add_done_callback(lambda done: done.cancelled() or done.exception())


@dataclass(slots=True)
class _Count:
    """Bytes since the stream began. `sent`: from here to the relay; `taken`: of these, by the far end. `came`: from the
    relay; `told`: of these, those that the relay was told were taken."""

    sent: int = 0
    taken: int = 0
    came: int = 0
    told: int = 0


class Stream:
    """One end of the stream that has the number `number` on the link to `relay`. `far`: the peer at its other end.
    `pipe`: the local pipe that it joins to the link. `ended` is called once, with this stream, when the transport has
    closed `pipe`."""

    def __init__(
        self, channel: Channel, relay: PeerId, number: int, far: PeerId, pipe: Pipe, ended: Callable[[Stream], None]
    ) -> None:
        self.relay, self.number, self.far = relay, number, far
        self._channel, self._pipe, self._ended = channel, pipe, ended
        self._unsent, self._count = bytearray(), _Count()
        self._telling: asyncio.TimerHandle | None = None
        self._open = True
        pipe.begin(PipeUser(self._read, self._drained, self._pipe_ended))

    @property
    def works(self) -> bool:
        """Whether any bytes have arrived from the far end since the stream began."""
        return self._count.came > 0

    def _read(self, data: bytes) -> None:
        self._unsent += data
        self._send_on()

    def _send_on(self) -> None:
        count = self._count
        while self._unsent and count.sent - count.taken < WINDOW_BYTES and self._open:
            data = bytes(self._unsent[:PIECE_BYTES_MAX])
            del self._unsent[: len(data)]
            count.sent += len(data)
            try:
                send(self._channel, self.relay, Piece(self.number), data)
            except PeerLost:
                return  # the loss of the relay ends the stream
        self._pipe.hold(bool(self._unsent))

    def arrived(self, data: Buffer) -> None:
        """Write `data`, a piece that has arrived, into the pipe. Raises PeerMisbehaved when it is more than the window
        allows."""
        self._count.came += len(data)
        if self._count.came - self._count.told > WINDOW_BYTES + PIECE_BYTES_MAX:
            raise PeerMisbehaved(f"sent more of a stream than its window of {WINDOW_BYTES} bytes")
        self._pipe.write(data)
        self._drained()

    def taken(self, total: int) -> None:
        """Note that the far end has taken `total` bytes since the stream began, and send the bytes that waited for
        that. Raises PeerMisbehaved when `total` is more than was sent."""
        if total > self._count.sent:
            raise PeerMisbehaved("took more of a stream than was sent")
        self._count.taken = max(self._count.taken, total)
        self._send_on()

    def _drained(self) -> None:
        owed = self._count.came - self._pipe.waiting_bytes - self._count.told
        if owed >= _TELL_BYTES:
            self._tell()
        elif owed and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_TELL_S, self._tell)

    def _tell(self) -> None:
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._count.told = self._count.came - self._pipe.waiting_bytes
        self._channel.post(self.relay, Taken(self.number, self._count.told))

    def _pipe_ended(self) -> None:
        if self._open:
            self._ended(self)
            self._channel.post(self.relay, Over(self.number, "its end was closed"))
            self.close()

    def close(self) -> None:
        """End the pipe, and send nothing more. `ended` is not called. A second call does nothing."""
        self._open = False
        self._unsent.clear()
        if self._telling is not None:
            self._telling.cancel()
        self._pipe.close()
