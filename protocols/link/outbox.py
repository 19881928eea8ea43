"""The outbox of an endpoint: all its links post their frames here, and it counts their bytes."""

from __future__ import annotations

from collections import Counter

from ..testpoints import buggify
from ..transport import PeerId, Transport
from ..wire.frames import Buffer


class Outbox:
    """Posts the frames of all links of one endpoint to `transport`. `bytes_sent`: the bytes that the transport has
    taken, framing and frames sent again included (`Transport.post`)."""

    def __init__(self, transport: Transport) -> None:
        self.bytes_sent = 0
        self.bytes_sent_by = Counter[str]()
        """Bytes of messages by channel, each message once, however often the link has to send it. The channel "" has
        the other frames."""
        self._transport = transport

    def post(self, peer: PeerId, header: bytes, payload: Buffer, channel: str) -> None:
        """Give a frame for `peer` to the transport, and count its bytes for `channel`. A frame of no channel, such as a
        pulse, and one that is sent again, has the channel ""."""
        self.bytes_sent_by[channel] += len(header) + len(payload)
        self.bytes_sent += self._transport.post(peer, header, payload)
        if buggify("a frame goes out twice"):
            self.bytes_sent += self._transport.post(peer, header, payload)
