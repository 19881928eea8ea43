"""Tenure: a server's present view, and the messages that wait until the server can handle them in this view.

A range is settled when all servers that hold it in this view have the same copy (`takeover`); then it is in `ready`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from ..channel import Channel, Envelope
from ..members.attributes import SERVER
from ..members.view import View
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, in_words
from .messages import NotTaken
from .placement import Placement

_HELD_PER_PEER_MAX = 64
"""The most messages of one peer that wait: an honest peer has fewer questions open."""


def placement_of(view: View, copies: int) -> Placement:
    """The chains of servers in this view; all members of the view compute the same ones. `copies`: of each range."""
    servers = tuple(one.id for one in view.members if one.attributes.role == SERVER)
    pairs = (frozenset((edge.one, edge.other)) for edge in view.apart)
    return Placement(servers, copies, frozenset(pair for pair in pairs if pair <= {*servers}))


def workers_of(view: View) -> tuple[PeerId, ...]:
    """The members of the view that train, which are all that are no servers."""
    return tuple(one.id for one in view.members if one.attributes.role != SERVER)


class Tenure:
    """One server's present view. `count`: the number of ranges of the model; `copies`: of each range. `mappers` gives
    by partition the worker of a view that maps it; empty: there are no partitions."""

    def __init__(
        self,
        channel: Channel,
        count: int,
        copies: int,
        mappers: Callable[[View], Mapping[str, PeerId]] = lambda view: {},
    ) -> None:
        self._channel, self._copies, self._mappers = channel, copies, mappers
        self.count = count
        self.epoch = 0
        self.placement = Placement((), copies)
        self.workers: tuple[PeerId, ...] = ()
        self._mapper: Mapping[str, PeerId] = {}
        self.ready: set[int] = set()
        """The settled ranges of which this server holds a copy."""
        self.lost: dict[int, str] = {}
        """Ranges of which no copy is left, each with the reason, in words."""
        self.on_settled: list[Callable[[], None]] = []
        """Called when ranges are settled."""
        self._held: list[tuple[Envelope, Callable[[Envelope], None]]] = []

    @property
    def me(self) -> PeerId:
        return self._channel.endpoint.id

    def begin(self, view: View) -> None:
        """`view` begins, and no range is settled in it yet."""
        self.epoch, self.placement = view.generation, placement_of(view, self._copies)
        self.workers, self._mapper = workers_of(view), self._mappers(view)
        self.ready.clear()
        self.lost.clear()
        self.look()

    def mapper(self, name: str) -> PeerId:
        """The worker that maps the partition `name`; a worker's name stands for itself. "": it is no certain one."""
        worker = self._mapper.get(name, name)
        return worker if worker in self.workers else ""

    def settle(self, ranges: Iterable[int]) -> None:
        """These ranges are settled: handle the messages that have waited for that."""
        self.ready |= {*ranges}
        self.look()
        for on_settled in self.on_settled:
            on_settled()

    def unsettle(self, range: int) -> None:
        """The chain of `range` is broken: messages about it wait until it is settled again."""
        self.ready.discard(range)

    def is_head(self, range: int) -> bool:
        """Whether this server is the head of the chain of a range."""
        return self.placement.chain(range)[0] == self.me

    def successor(self, range: int) -> PeerId | None:
        """The server behind this one in the chain of a range; None: this one is the tail."""
        chain = self.placement.chain(range)
        at = chain.index(self.me) + 1
        return chain[at] if at < len(chain) else None

    def handler(self, kind: type, handler: Callable[[Envelope], None]) -> None:
        """Register `handler` for messages of the class `kind`. It is called with a message of the present view once all
        ranges that the message names are settled. A message of a later view waits; one of a former view is refused; one
        about a lost range is answered with NotTaken."""

        def arrived(envelope: Envelope) -> None:
            if sum(one.sender == envelope.sender for one, _ in self._held) >= _HELD_PER_PEER_MAX:
                raise PeerMisbehaved(f"asked {_HELD_PER_PEER_MAX} questions at a time")
            self._admit(envelope, handler)

        self._channel.on(kind, arrived)

    def refuse(self, envelope: Envelope) -> None:
        """Refuse a question of a former view; its asker asks again in the new one."""
        envelope.done()
        self._channel.refuse(envelope, "the view has changed")

    def look(self) -> None:
        """Handle the waiting messages whose ranges are settled now. One that breaks the rules is refused,
        and the others are handled all the same."""
        held, self._held = self._held, []
        for envelope, handler in held:
            try:
                self._admit(envelope, handler)
            except PeerMisbehaved as error:
                envelope.done()
                self._channel.refuse(envelope, str(error))

    def _admit(self, envelope: Envelope, handler: Callable[[Envelope], None]) -> None:
        epoch = envelope.message.epoch
        ranges = getattr(envelope.message, "ranges", ())
        if any(not 0 <= range < self.count for range in ranges) or len({*ranges}) != len(ranges):
            raise PeerMisbehaved(f"spoke of ranges that are not among the {self.count} there are")
        if epoch < self.epoch:
            self.refuse(envelope)
        elif epoch > self.epoch:
            self._held.append((envelope, handler))
        elif gone := [range for range in ranges if range in self.lost]:
            envelope.done()
            said = NotTaken(envelope.message.ask, in_words(self.lost[gone[0]]), lost=True)
            self._channel.post(envelope.sender, said)
        elif all(range in self.ready for range in ranges):
            handler(envelope)
        elif any(self.me not in self.placement.chain(range) for range in ranges):
            self.refuse(envelope)  # it is not ours to hold
        else:
            self._held.append((envelope, handler))
