"""The outbox of an endpoint: all its links post their frames here, and it counts their bytes."""

from __future__ import annotations

from collections import Counter

from ..testpoints import buggify
from ..transport import PeerId, Transport
from ..wire.frames import Buffer


class Outbox:
    """Posts frames to `transport`."""

    def __init__(self, transport: Transport) -> None:
        self.bytes_sent = 0
        self.bytes_sent_by = Counter[str]()
        """Bytes of messages by channel, each message once, however often the link has to send it."""
        self._transport = transport

    def post(self, peer: PeerId, header: bytes, payload: Buffer, channel: str) -> None:
        """Post a frame, and count it for a channel, "" for none."""
        self.bytes_sent_by[channel] += len(header) + len(payload)
        self.bytes_sent += self._transport.post(peer, header, payload)
        if buggify("a frame goes out twice"):
            self.bytes_sent += self._transport.post(peer, header, payload)
