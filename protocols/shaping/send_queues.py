"""Frames that wait for their turn in a transport with a budget.

The frames to one peer wait in three queues. Pulses (the link's acknowledgements) that carry no ping go first: they only
acknowledge and give credit, and their numbers are absolute. Control messages without a payload go before data. All
other frames leave in the order in which they were posted: a control message with a payload counts as data, and a pulse
with a ping goes behind all frames that were posted before it, because its answer tells which of these have arrived.
Peers take turns; pulses and control messages that go first do so before the data for any peer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from ..link.lane import Pulse, cost_bytes
from ..transport import PeerId
from ..wire.frames import Buffer, Lane, PeerMisbehaved, decode

WAITING_BYTES_MAX = 64 << 20
"""The most bytes of frames that wait: links that keep to their windows have far fewer."""


@dataclass(slots=True, eq=False)
class Waiting:
    """Two frames to `peer`, `size` bytes on the wire. `number`: their place among all frames that were posted, from 1
    on."""

    peer: PeerId
    header: bytes
    payload: Buffer
    size: int
    number: int


@dataclass(slots=True)
class _Lines:
    """The frames to one peer. `pulses`: pulses without a ping."""

    pulses: deque[Waiting] = field(default_factory=deque)
    control: deque[Waiting] = field(default_factory=deque)
    data: deque[Waiting] = field(default_factory=deque)

    def urgent(self) -> deque[Waiting] | None:
        """The line whose first frame goes before any data; None: there is none."""
        if self.pulses:
            return self.pulses
        return self.control if self.control and not len(self.control[0].payload) else None

    def other(self) -> deque[Waiting] | None:
        """The line whose first frame was posted first; None: nothing waits."""
        waiting = [line for line in (self.control, self.data) if line]
        return min(waiting, key=lambda line: line[0].number, default=None)

    def __iter__(self) -> Iterator[Waiting]:
        yield from (*self.pulses, *self.control, *self.data)


class Lines:
    """The frames that wait, to all peers."""

    def __init__(self) -> None:
        self._of: dict[PeerId, _Lines] = {}
        """By peer; the peers whose turn comes next are first."""
        self._posted, self._bytes = 0, 0

    def __bool__(self) -> bool:
        return bool(self._of)

    def put(self, peer: PeerId, header: bytes, payload: Buffer, size: int) -> bool:
        """Add two frames to the frames that wait for `peer`; they take `size` bytes on the wire. Returns False, and
        drops them, when more than 64 MiB would wait."""
        cost = cost_bytes(header, payload)
        if self._bytes + cost > WAITING_BYTES_MAX:
            return False
        self._posted += 1
        self._bytes += cost
        one, lines = Waiting(peer, header, payload, size, self._posted), self._of.setdefault(peer, _Lines())
        self._line_of(one, lines).append(one)
        return True

    def _line_of(self, one: Waiting, lines: _Lines) -> deque[Waiting]:
        try:
            frame = decode(one.header, len(one.payload))
        except PeerMisbehaved:  # no message of ours: whoever posts it wants it as it is
            return lines.data
        if frame.lane is Lane.CONTROL:
            return lines.control
        pulse = frame.message if isinstance(frame.message, Pulse) else None
        return lines.data if pulse is None or pulse.ping else lines.pulses

    def take(self, reached: Callable[[PeerId], bool]) -> Waiting | None:
        """Remove and return the two frames that leave next, to a peer for which `reached` returns true; None: none wait
        for such a peer."""
        ready = [peer for peer in self._of if reached(peer)]
        for line_of in (_Lines.urgent, _Lines.other):
            for peer in ready:
                if line := line_of(self._of[peer]):
                    return self._took(peer, line)
        return None

    def _took(self, peer: PeerId, line: deque[Waiting]) -> Waiting:
        one, lines = line.popleft(), self._of.pop(peer)
        self._bytes -= cost_bytes(one.header, one.payload)
        if lines.pulses or lines.control or lines.data:
            self._of[peer] = lines
        return one

    def drop(self, peer: PeerId) -> None:
        """Drop all frames that wait for `peer`."""
        for one in self._of.pop(peer, ()):
            self._bytes -= cost_bytes(one.header, one.payload)
