"""Messages that a peer puts off until it can handle them."""

from __future__ import annotations

from collections.abc import Callable, Collection

from ..channel import Channel, Envelope
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

_PER_PEER_MAX = 64
"""The most messages of one peer that wait: an honest peer has fewer questions open."""


TOO_MANY = f"it has not answered {_PER_PEER_MAX} earlier questions yet"


def crowded(questions: Collection[Envelope], sender: PeerId) -> bool:
    """Whether 64 of `questions`, the most that may wait of one peer, are from `sender`."""
    return len(questions) >= _PER_PEER_MAX and sum(one.sender == sender for one in questions) >= _PER_PEER_MAX


class Held:
    """The messages of one channel that this peer has put off until it can handle them."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._held: list[tuple[Envelope, Callable[[Envelope], None]]] = []

    def put_off(self, envelope: Envelope, handler: Callable[[Envelope], None]) -> None:
        """Keep the message until `look` hands it to `handler`. Raises PeerMisbehaved if 64 messages of its sender wait
        already."""
        if crowded([one for one, _ in self._held], envelope.sender):
            raise PeerMisbehaved(f"asked {_PER_PEER_MAX} questions at a time")
        self._held.append((envelope, handler))

    def look(self) -> None:
        """Hand each kept message to its handler, which may put it off again."""
        held, self._held = self._held, []
        for envelope, handler in held:
            self._channel.resume(envelope, handler)

    def keep(self, senders: Collection[PeerId]) -> None:
        """Keep only the messages of `senders`; all others are answered with a refusal and dropped. A sender that joins
        in a later view asks again."""
        strange = [envelope for envelope, _ in self._held if envelope.sender not in senders]
        self._held = [one for one in self._held if one[0].sender in senders]
        for envelope in strange:
            envelope.done()
            self._channel.refuse(envelope, "it is not in the view")
