"""Tenure: a server's present view, and the messages that wait until the server can handle them in this view.

A range is settled when all servers that hold it in this view have the same copy (`takeover`); then it is in `ready`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise

from ..channel import Channel, Envelope
from ..members.attributes import SERVER
from ..members.view import NOBODY, View
from ..testpoints import witness, witnessed
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, in_words
from .events import Handled
from .held import Held
from .messages import NotTaken
from .parcels import Parcels
from .placement import Placement

_PASSED_MAX, _PASSED_RANGES_MAX = 256, 64
"""The most messages of `_Present.passed`, and the most ranges of each."""

Allowed = Callable[[PeerId, Sequence[int]], bool]
"""Whether a peer may send a message about these ranges in the present view."""


def placement_of(view: View, copies: int) -> Placement:
    """The chains of servers in this view; all members of the view compute the same ones. `copies`: the number of copies
    of each range."""
    servers = servers_of(view)
    pairs = (frozenset((edge.one, edge.other)) for edge in view.apart)
    return Placement(servers, copies, frozenset(pair for pair in pairs if pair <= {*servers}))


def servers_of(view: View) -> tuple[PeerId, ...]:
    """The members of the view that hold ranges."""
    return tuple(one.id for one in view.members if one.attributes.role == SERVER)


def workers_of(view: View) -> tuple[PeerId, ...]:
    """The members of the view that train, which are all that are no servers."""
    return tuple(one.id for one in view.members if one.attributes.role != SERVER)


@dataclass(slots=True)
class _Present:
    """The present view, and in `passed` the kind, sender and ranges of messages that were handled since what is settled
    in it last changed. The next such message is handled at once."""

    view: View = NOBODY
    passed: set[tuple[type, PeerId, tuple[int, ...]]] = field(default_factory=set)


class Tenure:
    """One server's present view: which ranges are settled in it, which server holds what, and the messages that wait
    until the server can handle them. `count`: the number of ranges of the model; `copies`: of each range. `mappers`
    gives by partition the worker of a view that maps it; empty: there are no partitions."""

    def __init__(
        self,
        channel: Channel,
        count: int,
        copies: int,
        mappers: Callable[[View], Mapping[str, PeerId]] = lambda view: {},
    ) -> None:
        self._channel, self._mappers = channel, mappers
        self.count = count
        self._present = _Present()
        self.placement = Placement((), copies)
        self.workers: tuple[PeerId, ...] = ()
        self._mapper: Mapping[str, PeerId] = {}
        self.ready: set[int] = set()
        """The settled ranges of which this server holds a copy."""
        self.lost: set[int] = set()
        """The ranges of which no copy is left."""
        self.on_settled: list[Callable[[], None]] = []
        """Functions without arguments, called when ranges are settled."""
        self._held = Held(channel)
        self.parcels = Parcels(channel)
        """Payloads that this server sends and receives in shared memory."""

    @property
    def epoch(self) -> int:
        """The generation of the view; 0: there is none yet."""
        return self._present.view.generation

    @property
    def everybody(self) -> tuple[PeerId, ...]:
        """The members and learners of the view."""
        return self._present.view.everybody

    @property
    def me(self) -> PeerId:
        """This server's id."""
        return self._channel.endpoint.id

    def begin(self, view: View) -> None:
        """Make `view` the present one, in which no range is settled yet, and handle the messages that have waited for
        it."""
        self._present = _Present(view)
        self.placement = placement_of(view, self.placement.copies)
        self.workers, self._mapper = workers_of(view), self._mappers(view)
        self.parcels.begin(view)
        self.ready.clear()
        self.lost.clear()
        self._held.keep(self.everybody)
        self._held.look()

    def mapper(self, name: str) -> PeerId:
        """The present worker that a clock's name stands for: for the name of a partition, the worker that maps it; for
        a worker's id, that worker. "": that worker is not in the view."""
        worker = self._mapper.get(name, name)
        return worker if worker in self.workers else ""

    def settle(self, ranges: Iterable[int]) -> None:
        """Note that these ranges are settled, handle the messages that have waited for that, and call the functions in
        `on_settled`."""
        self.ready |= {*ranges}
        self._held.look()
        for on_settled in self.on_settled:
            on_settled()

    def unsettle(self, range: int) -> None:
        """Note that the chain of `range` is broken: messages about the range wait until it is settled again."""
        self.ready.discard(range)
        self._present.passed.clear()

    def lose(self, ranges: Iterable[int]) -> None:
        """Note that no copy of these ranges is left, as long as the view is this one: questions about one of them,
        those that have waited and later ones, are answered with NotTaken. `ready` does not change."""
        self.lost |= {*ranges}
        self._present.passed.clear()
        self._held.look()

    def head(self, range: int) -> PeerId | None:
        """The server at the head of the chain of a range; None: there are no servers."""
        return next(iter(self.placement.chain(range)), None)

    def successor(self, range: int) -> PeerId | None:
        """The server behind this one in the chain of a range; None: this one is the tail. Raises ValueError when this
        server is not in the chain."""
        chain = self.placement.chain(range)
        at = chain.index(self.me) + 1
        return chain[at] if at < len(chain) else None

    def from_worker(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is a worker of the view. The ranges are ignored."""
        return sender in self.workers

    def from_worker_to_head(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is a worker, and this server the head of all these ranges."""
        return sender in self.workers and self._leads(ranges)

    def from_worker_to_coordinator(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is a worker of the view, and this server is the coordinator, the head of the first range."""
        return sender in self.workers and self.head(0) == self.me

    def from_coordinator_to_head(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is the coordinator, the head of the first range, and this server the head of all these
        ranges."""
        return sender == self.head(0) and self._leads(ranges)

    def _leads(self, ranges: Sequence[int]) -> bool:
        """Whether this server is the head of these ranges."""
        me, chain = self.me, self.placement.chain
        return all(chain(range)[:1] == (me,) for range in ranges)

    def from_server(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is a server of the view. The ranges are ignored."""
        return sender in self.placement.servers

    def from_predecessor(self, sender: PeerId, ranges: Sequence[int]) -> bool:
        """Whether `sender` is the server before this one in the chain of each of these ranges."""
        pair = (sender, self.me)
        return all(pair in pairwise(self.placement.chain(range)) for range in ranges)

    def handler(self, kind: type, handler: Callable[[Envelope], None], allowed: Allowed) -> None:
        """Register `handler` for messages of the class `kind`, which has `epoch`, and perhaps `ranges`. It is called
        with a message of the present view once all its ranges are settled; until then, and before its view, a message
        waits. A message of a former view, or about a range in whose chain this server is not, is refused. A question
        about a lost range is answered with NotTaken. A message whose sender is not `allowed`, or with ranges that are
        unknown or named twice, is a fault of its sender (PeerMisbehaved)."""
        self._channel.on(kind, partial(self._admit, handler=handler, allowed=allowed))

    def refuse(self, envelope: Envelope) -> None:
        """Refuse a question of a former view, or about a range in whose chain this server is not: its asker gets
        PeerLost, and asks again. For a message that is no question nothing is sent."""
        envelope.done()
        self._channel.refuse(envelope, "the view has changed")

    def _admit(self, envelope: Envelope, handler: Callable[[Envelope], None], allowed: Allowed) -> None:
        present, epoch, ranges = self._present, envelope.message.epoch, getattr(envelope.message, "ranges", ())
        passed = type(envelope.message), envelope.sender, ranges
        if epoch == present.view.generation and passed in present.passed:
            if witnessed():
                witness(Handled(envelope.sender))
            handler(envelope)
            return
        again, named = partial(self._admit, handler=handler, allowed=allowed), {*ranges}
        if len(named) != len(ranges) or min(named, default=0) < 0 or max(named, default=0) >= self.count:
            raise PeerMisbehaved(f"spoke of ranges that are not among the {self.count} there are")
        if epoch < self.epoch:
            self.refuse(envelope)
        elif epoch > self.epoch:
            self._held.put_off(envelope, again)
        elif any(self.me not in self.placement.chain(range) for range in named - self.ready - self.lost):
            self.refuse(envelope)  # it is not ours to hold
        elif not allowed(envelope.sender, ranges):
            raise PeerMisbehaved(f"sent {type(envelope.message).__name__}, which it may not send in view {epoch}")
        elif gone := named & self.lost:
            envelope.done()
            said = NotTaken(envelope.message.ask, in_words(_gone(min(gone))), lost=True)
            self._channel.post(envelope.sender, said)
        elif named <= self.ready:
            if len(present.passed) >= _PASSED_MAX:
                present.passed.clear()
            if len(ranges) <= _PASSED_RANGES_MAX:
                present.passed.add(passed)
            if witnessed():
                witness(Handled(envelope.sender))
            handler(envelope)
        else:
            self._held.put_off(envelope, again)


def _gone(number: int) -> str:
    return (
        f"the last copies of range {number} of the model went with their servers: begin with more --copies, or go on "
        "from the checkpoints with --resume"
    )
