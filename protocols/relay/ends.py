"""The ends of streams: how two peers that cannot be dialled reach each other through a relay.

A stream begins when the transport has frames for a peer that cannot be dialled, and opens a pipe, which stands for the
connection to it (`Pipes.wanted`). This peer asks a relay, a member that can be dialled and that both peers know, to
carry the pipe's bytes to the other peer, which writes them into its own inbox. The bytes are encrypted between the two;
the relay sees how many they exchange, and when.

Which relay: the members that can be dialled are put into an order drawn from the two peers' ids (rendezvous hashing),
so that pairs are spread over the relays. The peer gives up a relay that refuses, is lost, or has been silent for half
the patience, and asks the next one in order; after the last it asks the first again. Half the patience, because the two
peers should meet by another relay before each takes the other for lost. Where all relays are lost, it asks them
nevertheless.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Sequence

from ..channel import Channel, Envelope
from ..pipes import Pipe
from ..testpoints import sometimes
from ..transport import PeerId, Pipes
from ..wire.frames import PeerMisbehaved
from .messages import Called, Carry, Over, Piece, Taken
from .stream import Stream

_STREAMS_MAX = 1024
_LOOKS = 16
"""How often in one patience it checks whether the relays are silent."""


def in_order(relays: Iterable[PeerId], one: PeerId, other: PeerId) -> list[PeerId]:
    """The relays in the order in which the peers `one` and `other` ask them; the same for both peers if both know the
    same relays."""
    pair = " ".join(sorted((one, other)))
    return sorted(relays, key=lambda relay: hashlib.blake2b(f"{pair} {relay}".encode()).digest())


class Ends:
    """One peer's ends of streams. It opens streams for its transport's pipes, and accepts those that others open to it.
    `relays` returns, for the peer that a stream is to reach, the peers that may carry it."""

    def __init__(self, channel: Channel, pipes: Pipes, relays: Callable[[PeerId], Sequence[PeerId]]) -> None:
        self._channel, self._pipes, self._relays = channel, pipes, relays
        self._streams: dict[tuple[PeerId, int], Stream] = {}
        """By relay and number."""
        self._last = 0
        self._failed: dict[PeerId, PeerId] = {}
        """For each other peer: the relay that has failed last on the way to it."""
        self._looking: asyncio.TimerHandle | None = None
        self._troubled = set[PeerId]()
        pipes.wanted = self._wanted
        endpoint = channel.endpoint
        endpoint.on_lost.append(lambda peer, why: self._lost(peer))
        endpoint.on_ended.append(self._lost)
        channel.on(Called, self._on_called)
        channel.on(Piece, self._on_piece)
        channel.on(Taken, self._on_taken)
        channel.on(Over, self._on_over)

    def _wanted(self, peer: PeerId, pipe: Pipe) -> None:
        relay = self._relay_to(peer)
        if relay is None or len(self._streams) >= _STREAMS_MAX:
            pipe.close()
            return
        self._channel.endpoint.retry(relay)
        self._last += 2
        self._channel.post(relay, Carry(self._last, peer))
        self._begin(relay, self._last, peer, pipe)

    def _relay_to(self, peer: PeerId) -> PeerId | None:
        """The relay to ask for a stream to `peer`: the next in order after the one that failed last. None: there is no
        relay."""
        endpoint, relays = self._channel.endpoint, in_order(self._relays(peer), self._channel.endpoint.id, peer)
        if (failed := self._failed.get(peer)) in relays:
            first = relays.index(failed) + 1
            relays = [*relays[first:], *relays[:first]]
        return next((one for one in relays if endpoint.is_lost(one) is None), next(iter(relays), None))

    def _on_called(self, envelope: Envelope) -> None:
        relay, called = envelope.sender, envelope.message
        if (relay, called.stream) in self._streams or not called.stream % 2:
            raise PeerMisbehaved(f"began a stream with the number {called.stream}, which is not free")
        if relay not in self._relays(called.caller) or len(self._streams) >= _STREAMS_MAX:
            self._channel.post(relay, Over(called.stream, "no stream is taken from this relay now"))
            return
        self._begin(relay, called.stream, called.caller, self._pipes.inlet())

    def _begin(self, relay: PeerId, number: int, far: PeerId, pipe: Pipe) -> None:
        self._streams[relay, number] = Stream(self._channel, relay, number, far, pipe, self._closed)
        self._watch()

    def _on_piece(self, envelope: Envelope) -> None:
        if (stream := self._of(envelope)) is not None:
            stream.arrived(envelope.payload)

    def _on_taken(self, envelope: Envelope) -> None:
        if (stream := self._of(envelope)) is not None:
            stream.taken(envelope.message.total)

    def _on_over(self, envelope: Envelope) -> None:
        if (stream := self._of(envelope)) is not None:
            self._fail([stream])

    def _of(self, envelope: Envelope) -> Stream | None:
        """The stream that a message is about; None: it has ended here, and the relay has been told so."""
        return self._streams.get((envelope.sender, envelope.message.stream))

    def _lost(self, relay: PeerId) -> None:
        self._fail([stream for stream in self._streams.values() if stream.relay == relay])

    def _fail(self, streams: list[Stream]) -> None:
        """Close these streams, which their relay does not carry any more. The transport will ask for new ones, by
        another relay."""
        for stream in streams:
            self._note_failed(stream)
            del self._streams[stream.relay, stream.number]
            stream.close()
        if streams:
            self._watch()

    def _closed(self, stream: Stream) -> None:
        """The transport has closed the pipe of the stream."""
        if not stream.works:
            self._note_failed(stream)
        del self._streams[stream.relay, stream.number]
        self._watch()

    def _note_failed(self, stream: Stream) -> None:
        if len(self._failed) >= _STREAMS_MAX:
            self._failed.clear()
        self._failed[stream.far] = stream.relay

    # Looking after the relays

    def _watch(self) -> None:
        self._channel.watch({stream.relay for stream in self._streams.values()})
        if self._looking is None and self._streams:
            self._look_later()
        elif self._looking is not None and not self._streams:
            self._looking.cancel()
            self._looking = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        period_s = self._channel.endpoint.patience_s / _LOOKS
        self._looking = loop.call_later(period_s, self._look, loop.time() + 2 * period_s)

    def _look(self, in_time_s: float) -> None:
        """Give up the relays that are silent, unless it is later than `in_time_s`: then this process stood still, and
        the silence is not the relays' fault."""
        self._looking, endpoint = None, self._channel.endpoint
        now, relays = asyncio.get_running_loop().time(), {stream.relay for stream in self._streams.values()}
        troubled = {relay for relay in relays if endpoint.trouble(relay) is not None}
        for relay in sorted(relays) if now <= in_time_s else ():
            link = endpoint.links.get(relay)
            silent = link is None or now - link.heard_at > endpoint.patience_s / 2
            if silent or relay in self._troubled & troubled:  # not at the first trouble: it may connect again at once
                sometimes("a relay was given up")
                self._lost(relay)
        self._troubled = troubled
        if self._streams:
            self._look_later()
