"""Hostile senders: they send well-formed messages of every kind with extreme values, and altered copies of honest
messages. A member also alters the parts of its state that others fetch, tells of views that were never decided, and
proposes two next views at once.

A sender is an admitted key that is no member, a key that holds only the run's invite, or a member that otherwise
behaves like the others. Peers soon ban a hostile key, so new ones keep coming.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import importlib
import itertools
import random
import types
import typing
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ...peers.conversations.loading import loaded
from ...peers.conversations.registry import CONVERSATIONS
from ...protocols.endpoint import Endpoint
from ...protocols.link.link import PeerLost
from ...protocols.members.invites import Admit
from ...protocols.members.messages import MEMBERS, Install
from ...protocols.members.view import Decree
from ...protocols.transport import PeerId
from ...protocols.wire.frames import Lane, PeerMisbehaved, decode, kind_of, kinds, lane_of, payload_max_of, type_of
from ...protocols.wire.schema import INT_MAX, STR_BYTES_MAX
from .network import Network
from .simulated_peer import Life
from .transport import SimulatedTransport
from .two_faced import present, two_proposals
from .ways import Frame

KEY, GUEST = "hostile", "guest"
"""Prefixes of the ids of hostile senders: of those with an admitted key of their own, and of those with the invite's
guest key only."""
EVERY_S = 0.05
_LATE = ("...peers.conversations.local_sgd", "...protocols.swim.membership")
"""Modules with kinds of messages that are imported only where they are used (`peers.memberships`)."""
_KEY_FOR = 20
"""Number of messages that a key sends before another key replaces it."""
FLOODS, _FLOOD = 0.05, 40
"""One message in 20 is sent 40 times at once."""
LIES = 0.15
"""The share of a member's messages that tell one other of a view that was never decided."""
TWO_FACED = 0.05
"""The share of a member's messages that are two proposals."""
_HEARD_MAX = 256
_LIBRARY = __name__.partition(".")[0] + "."
_OUT_OF_THE_WORLD = ("reach.AskReach", "foreign.Foreign")
"""Kinds of messages that are not sent: the first makes its receiver open a real connection, and the second is no
message of the library (`overheard`)."""
_INTS = (0, 1, 2, 3, 1 << 16, 1 << 31, 1 << 36, 1 << 37, 1 << 62, INT_MAX)
_FLOATS = (0.0, -1.0, 0.5, 3600.0, 5e-324, 1e308, -1e308)
_TEXTS = ("", "x", "sim://nowhere", "tcp://127.0.0.1:1", "é" * 200)
_BLOBS = (b"", bytes(32), b"\xff" * 200)


class Speech:
    """Draws hostile messages: half of them made by the wire's schema alone, half by altering an overheard message of an
    honest peer. `peers`: the ids of peers that messages may name."""

    def __init__(self, chance: random.Random, peers: Sequence[PeerId]) -> None:
        self._chance, self._peers = chance, peers
        self._heard: deque[tuple[str, object]] = deque(maxlen=_HEARD_MAX)
        self._channel_of: dict[str, str] = {}
        """Family of messages -> the channel on which it was heard."""
        self._ints: deque[int] = deque(maxlen=_HEARD_MAX)
        self._install: Install | None = None
        """The view that was heard last, or that a member is in."""

    @property
    def channels(self) -> list[str]:
        """The names of the channels on which honest messages were heard, and "", which is the link's own."""
        return ["", *dict.fromkeys(self._channel_of.values())]

    def hear(self, header: bytes, payload_bytes: int) -> None:
        """Keep the message of an honest peer in the frame with that `header`, for altering it. A frame that breaks the
        wire's rules is passed over."""
        try:
            frame = decode(header, payload_bytes)
        except PeerMisbehaved:
            return
        message = frame.message
        self._heard.append((frame.channel, message))
        self._channel_of[_family(kind_of(message))] = frame.channel
        self._install = message if isinstance(message, Install) else self._install
        self._ints += [value for value in vars_of(message).values() if type(value) is int]

    def know(self, decree: Decree) -> None:
        """Lies begin from the view of `decree`, as long as none was heard."""
        self._install = self._install or Install(decree)

    def lie(self, liar: PeerId, to: PeerId) -> Install | None:
        """A message with a view that was never decided: the one after that which was heard last, without one of its
        members other than `liar`, the member that tells it, and `to`, the peer that is told (with all, if there is no
        other). None: no view is known."""
        if self._install is None:
            return None
        decree = self._install.decree
        without = [one for one in decree.view.members if one.id not in (liar, to)]
        out = self._chance.choice(without) if without else None
        members = tuple(one for one in decree.view.members if one is not out)
        view = dataclasses.replace(decree.view, generation=decree.view.generation + 1, members=members)
        return Install(dataclasses.replace(decree, view=view))

    def next(self) -> tuple[str, object, bytes]:
        """Draw a message. Returns its channel, the message and its payload of zeros, perhaps empty."""
        if self._heard and self._chance.random() < 0.5:
            channel, message = self._chance.choice(self._heard)
            message = self._altered(message)
        else:
            kind = self._chance.choice(self._kinds())
            astray = self._chance.random() < 0.1
            channel = self._chance.choice(self.channels) if astray else self._channel_of.get(_family(kind), "")
            message = self._of(type_of(kind))
        most = payload_max_of(message)
        sizes = (0, 1, 8, min(most, 4096), *((most,) if self._chance.random() < 0.02 else ()))
        return channel, message, bytes(min(most, self._chance.choice(sizes)))

    def _kinds(self) -> list[str]:
        """The kinds of the library, and those that were heard. Kinds that this process has only imported are left out:
        which they are depends on earlier runs, and a run must not depend on that."""
        for name in CONVERSATIONS:  # else the library's kinds would be those of the conversations imported so far
            loaded(name)
        for late in _LATE:
            importlib.import_module(late, __package__)
        return [
            kind
            for kind in kinds()
            if kind not in _OUT_OF_THE_WORLD
            and (type_of(kind).__module__.startswith(_LIBRARY) or _family(kind) in self._channel_of)
        ]

    def _altered(self, message: Any) -> Any:
        fields = _hints(type(message))
        if not fields:
            return message
        name = self._chance.choice(list(fields))
        value = getattr(message, name)
        if dataclasses.is_dataclass(value) and self._chance.random() < 0.7:
            return dataclasses.replace(message, **{name: self._altered(value)})
        if isinstance(value, tuple) and value and self._chance.random() < 0.7:
            place = self._chance.randrange(len(value))
            one = value[place]
            changed = (self._altered(one),) if dataclasses.is_dataclass(one) else self._chance.choice(((), (one, one)))
            return dataclasses.replace(message, **{name: (*value[:place], *changed, *value[place + 1 :])})
        return _allowed(lambda: dataclasses.replace(message, **{name: self._of(fields[name])}))

    def _of(self, hint: Any) -> Any:
        chance, origin, args = self._chance, typing.get_origin(hint), typing.get_args(hint)
        if hint is bool:
            return chance.random() < 0.5
        if hint is int:
            value = chance.choice((*_INTS, *self._ints))
            return min(INT_MAX, max(0, value + chance.choice((-1, 0, 0, 1))))
        if hint is float:
            return chance.choice(_FLOATS)
        if hint is str:
            return "x" * STR_BYTES_MAX if chance.random() < 0.01 else chance.choice((*_TEXTS, *self._peers))
        if hint is bytes:
            return chance.choice(_BLOBS)
        if origin is tuple:
            return tuple(self._of(args[0]) for _ in range(chance.choice((0, 0, 1, 1, 2, 5, 50))))
        if origin in (types.UnionType, typing.Union):
            return None if chance.random() < 0.5 else self._of(args[0])
        return _allowed(lambda: hint(**{name: self._of(one) for name, one in _hints(hint).items()}))


_hints: Callable[[Any], dict[str, Any]] = functools.cache(typing.get_type_hints)


def _allowed(draw: Callable[[], Any]) -> Any:
    """Call `draw` until the message that it makes passes the checks of its own dataclass: others cannot be
    constructed."""
    while True:
        with contextlib.suppress(ValueError):
            return draw()


def _family(kind: str) -> str:
    return kind.partition(".")[0]


def vars_of(message: object) -> dict[str, object]:
    """The fields of a message or record, by their names."""
    return {field.name: getattr(message, field.name) for field in dataclasses.fields(message)}  # type: ignore[arg-type]


def say(endpoint: Endpoint, to: PeerId, channel: str, message: object, payload: bytes) -> None:
    """Send the message, unless it would have to wait for credit or is one of the link's own. `payload` goes with a
    message of the lane DATA only; others are sent without one. If the message is too large, or `to` is lost, nothing is
    sent and no error raised."""
    with contextlib.suppress(PeerLost, ValueError):  # it is cut off, or the message is too large
        if lane_of(message) is Lane.CONTROL:
            endpoint.post(channel, to, message)
        elif lane_of(message) is Lane.LOOSE:
            endpoint.tell(channel, to, message)
        elif lane_of(message) is Lane.DATA:
            waiting = endpoint.links.known(to).offer(channel, message, payload)
            if waiting is not None:
                waiting.cancel()


class Hostile:
    """Sends a hostile message every `EVERY_S` virtual seconds to a random one of the peers that `lives` returns, until
    it is stopped. Each of `members` sends, or, if there are none, keys of its own do."""

    def __init__(self, network: Network, seed: str, lives: Callable[[], list[Life]], members: list[Life]) -> None:
        self._network, self._lives, self._members = network, lives, members
        self._chance = random.Random(f"{seed} hostile")
        self._speech = Speech(self._chance, [life.id for life in lives()])
        self._own: list[Endpoint] = []
        self._said, self._floods = 0, random.Random(f"{seed} floods")
        self._proposals = random.Random(f"{seed} proposals")
        network.seen.append(self._hear)
        self._task = asyncio.create_task(self._speak(), name="hostile")

    def _hear(self, frame: Frame, sent: bool) -> None:
        if sent and not frame.sender.startswith((KEY, GUEST)):
            self._speech.hear(frame.header, len(frame.payload))

    async def _speak(self) -> None:
        while True:
            if self._members:
                self._alter_parts_of(frozenset(life.id for life in self._members))
                for life in self._members:
                    if life.running:
                        life.machine.context.run(self._say_as, life)
            else:
                if self._said % _KEY_FOR == 0:
                    await self._come()
                for endpoint in self._own:
                    self._say(endpoint)
            self._said += 1
            await asyncio.sleep(EVERY_S)

    def _alter_parts_of(self, liars: frozenset[PeerId]) -> None:
        for life in self._lives():
            life.endpoint.liars = liars

    async def _come(self) -> None:
        """Replace the own keys by new ones, and connect them to all peers, as an invite admits any key."""
        self._go()
        number = self._said // _KEY_FOR
        for key in (f"{KEY}-{number}", f"{GUEST}/{number}"):
            endpoint = Endpoint(SimulatedTransport(self._network, key), patience_s=1.0, rng=self._chance)
            for channel, kind in itertools.product(dict.fromkeys(self._speech.channels), kinds()):
                endpoint.reception.on(channel, type_of(kind), lambda envelope: envelope.done())
            await endpoint.open()
            self._own.append(endpoint)
        for life in self._lives():
            life.machine.context.run(life.endpoint.admit, GUEST, guest=(MEMBERS, Admit))
            for endpoint in self._own:
                endpoint.dial(life.id, life.endpoint.address)
                self._network.doors.admit(life.id, endpoint.id)

    def _say_as(self, life: Life) -> None:
        if (decree := present(life)) is not None:
            self._speech.know(decree)
        self._say(life.endpoint)
        if self._proposals.random() < TWO_FACED:
            for to, message in two_proposals(life, self._proposals):
                say(life.endpoint, to, MEMBERS, message, b"")

    def _say(self, endpoint: Endpoint) -> None:
        others = [life.id for life in self._lives() if life.id != endpoint.id]
        channel, message, payload = self._speech.next()
        if not others or lane_of(message) is Lane.LINK:
            return
        to = self._chance.choice(others)
        if self._members and self._floods.random() < LIES and (lie := self._speech.lie(endpoint.id, to)) is not None:
            channel, message, payload = MEMBERS, lie, b""
        for _ in range(_FLOOD if self._floods.random() < FLOODS else 1):
            say(endpoint, to, channel, message, payload)

    def _go(self) -> None:
        for endpoint in self._own:
            endpoint.abort()
        self._own.clear()

    def stop(self) -> None:
        """Stop sending, and close the endpoints of all own keys. If the sending had ended by an error before, raises
        that error and does nothing else."""
        if self._task.done() and not self._task.cancelled():
            self._task.result()
        self._task.cancel()
        self._alter_parts_of(frozenset())
        self._go()
        if self._hear in self._network.seen:
            self._network.seen.remove(self._hear)
