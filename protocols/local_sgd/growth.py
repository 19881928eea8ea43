"""Growth: when parameters are unfrozen during a run, all members begin to average them in the same round
(`aggregation.growth`).

An update names the parameters in it that were frozen when the run began. Those of them that are not in the state yet
are the peer's wish. A wish is granted in the first round in which all members have it. The members find that out at the
beginning of each attempt. A member with a wish tells it to the others and waits until each of them has told its own; a
member without one answers only those that tell theirs. All therefore know the same set before any of them begins the
sum. The state before the round is then extended by the values that the parameters had while frozen, which are equal on
all peers. If the replicas unfreeze alike, e.g. all after the same round, the first steps of a parameter are averaged.

A peer whose wish is not granted yet trains the parameter, and contributes the rest of its model. A parameter that half
of the members or more wish for is unfrozen by the others too (`urged`), e.g. by a newcomer that missed the round after
which its task would have done so. Fewer members cannot make the others train what they have frozen.

Cost: nothing in a round without a wish; otherwise 2 n (n - 1) messages of a bit for each frozen parameter, and two
trips.
On failure: the view changes, and the members tell their wishes anew. A grant counts only with the round's commit.
Members that find that they have granted different sets have the view renewed, and tell no wish in the next 2 rounds;
each further time in twice as many, up to 1024.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from torch import Tensor

from ...aggregation.growth import carried, from_bits, grown, in_order, to_bits
from ...aggregation.vector import Layout
from ..channel import Channel, Envelope
from ..group import check_sense
from ..limits import VIEW_MEMBERS_MAX
from ..members.membership import Membership
from ..meter import Meter
from ..testpoints import sometimes
from ..transfer.chunks import AttemptId
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved, message
from .rounds import LOCAL_SGD, Contribution
from .state import State


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Wish:
    """Sent to the other members at the beginning of an attempt: the sender trains these parameters, and they are not
    averaged yet. `parameters`: a bit for each frozen parameter of the model; empty: none."""

    generation: int
    round: int
    parameters: bytes


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Granted:
    """Sent to the other members when each of them has told its wish: the parameters that all wish for, by what the
    sender heard."""

    generation: int
    round: int
    parameters: bytes


@message(LOCAL_SGD)
@dataclass(frozen=True, slots=True)
class Differ:
    """Sent to the coordinator: another member has granted other parameters than the sender. The coordinator then has
    the view renewed."""

    generation: int
    round: int


_WAITS_MAX = 10
T = TypeVar("T", Wish, Granted)


class Growth:
    """One peer's wishes to have unfrozen parameters averaged, and those of the others: all begin to average a parameter
    in the first round in which all wish for it. `layout`: the one with which the run begins."""

    def __init__(
        self, channel: Channel, membership: Membership, layout: Layout, meter: Meter, state: Callable[[], State]
    ) -> None:
        """`state` returns the last committed state."""
        self._channel, self._membership, self._meter, self._state = channel, membership, meter, state
        self._first = layout
        self._mine: Wish | None = None
        """This peer's wish in its present attempt; None: it has made no attempt yet."""
        self._told: dict[PeerId, Wish] = {}
        self._granted: dict[PeerId, Granted] = {}
        self._asked: set[PeerId] = set()
        """The peers that have told a wish in the present attempt, and been told this peer's."""
        self._urged: tuple[str, ...] = ()
        self._differed, self._silent_to = 0, 0
        """How often members have granted different sets, and the round up to which this peer tells no wish for it."""
        channel.on(Wish, self._hear)
        channel.on(Granted, self._on_granted)
        channel.on(Differ, self._on_differ)

    def layout(self, names: tuple[str, ...] | None = None) -> Layout:
        """The layout of the model with the frozen parameters `names` unfrozen; None: with those of the last committed
        state."""
        return grown(self._first, self._state().grown if names is None else names)

    @property
    def urged(self) -> tuple[str, ...]:
        """The parameters, not yet in the state, that this peer's replica should unfreeze because at least half of the
        members have wished for them in the same attempt, now or earlier."""
        return tuple(name for name in self._urged if name not in self._state().grown)

    def summed_bytes(self, fragments: int) -> int:
        """About the bytes of the vector that a round sums, in a run with so many `fragments`: those of the whole model
        by now, divided by that number."""
        return self.layout().nbytes // fragments

    def parameters(self, first: int | None, state: State) -> int | None:
        """The number of elements at the start of the vector of `state` that are parameters. `first`: their number when
        the run began; None: all elements are, and the result is None too."""
        return None if first is None else first + self.layout(state.grown).size - self._first.size

    def carry(self, vector: Tensor, names: tuple[str, ...], state: State) -> Tensor:
        """`vector`, in the layout with `names` unfrozen, brought into the layout of `state`. Elements that it lacks are
        those of the state's vector."""
        return carried(vector, self.layout(names), self.layout(state.grown), state.vector)

    def fitted(self, contribution: Contribution, state: State) -> Contribution:
        """`contribution` with its vector brought into the layout of `state` (`carry`)."""
        if contribution.grown == state.grown:
            return contribution
        vector = self.carry(contribution.vector, contribution.grown, state)
        return contribution._replace(vector=vector, grown=state.grown)

    def extended(self, state: State, contribution: Contribution, names: tuple[str, ...] | None = None) -> State:
        """`state` with the parameters `names` (None: all unfrozen ones of `contribution`) added to its vector. They get
        the values that they had while frozen (`contribution.base`), and zeros in the outer step's tensors. Returns
        `state` itself if it has them all."""
        after = in_order(self._first, {*state.grown, *(contribution.grown if names is None else names)})
        if after == state.grown:
            return state
        before, layout = self.layout(state.grown), self.layout(after)
        vector = carried(state.vector, before, layout)
        for slot in layout.slots:
            if slot.name in after and slot.name not in state.grown:
                vector[slot.start : slot.stop] = contribution.base[slot.name]
        outer = tuple(carried(tensor, before, layout) for tensor in state.outer)
        return replace(state, vector=vector, outer=outer, grown=after)

    async def agreed(self, attempt: AttemptId, contribution: Contribution, state: State) -> tuple[Contribution, State]:
        """At the beginning of an attempt: agree with all members on the layout, and return the contribution and the
        state before the round in that layout. It waits for the others only if this peer has a wish. Both are returned
        as they are where the model has no frozen parameters. Raises what `Membership.until` raises."""
        if self._first.later is None:
            return contribution, state
        silent = state.round < self._silent_to
        wish = [name for name in contribution.grown if name not in state.grown and not silent]
        self._mine = mine = Wish(*attempt, to_bits(self._first, wish))
        self._asked = {peer for peer, told in self._told.items() if told.parameters and _same(told, mine)}
        others = [peer for peer in self._membership.view.ids if peer != self._channel.endpoint.id]
        for peer in others if wish else self._asked:
            self._channel.post(peer, mine)
        granted = {*wish}
        if wish:
            sometimes("a parameter was unfrozen during the run")
            with self._meter.stalled_sum(lambda: {peer for peer in others if not self._has_told(peer, mine)}):
                await self._membership.until(lambda: all(self._has_told(peer, mine) for peer in others))
            for peer in others:
                granted &= {*from_bits(self._first, self._told[peer].parameters)}
            if granted != {*wish}:
                sometimes("a parameter was not unfrozen by all at once")
            await self._confirmed(Granted(*attempt, to_bits(self._first, granted)), others)
        state = self.extended(state, contribution, (*state.grown, *granted))
        return self.fitted(contribution, state), state

    async def _confirmed(self, mine: Granted, others: Sequence[PeerId]) -> None:
        """Return when all others have granted the same set. Where it is empty nobody else can have granted another
        one and begun the sum, so there is nothing to wait for. Where sets differ, wait for the end of the attempt."""
        for peer in others:
            self._channel.post(peer, mine)

        def missing() -> set[PeerId]:
            return {peer for peer in others if (told := self._granted.get(peer)) is None or not _same(told, mine)}

        if mine.parameters:
            with self._meter.stalled_sum(missing):
                await self._membership.until(lambda: not missing())
            if any(self._granted[peer].parameters != mine.parameters for peer in others):
                await self._renewed(mine)

    async def _renewed(self, mine: Granted) -> None:
        """Have the view renewed. A coordinator that does not have it renewed is given up."""
        sometimes("members heard different wishes")
        membership, coordinator = self._membership, self._membership.coordinator
        self._be_silent()
        if coordinator == self._channel.endpoint.id:
            membership.renew()
        elif coordinator is not None:
            self._channel.post(coordinator, Differ(mine.generation, mine.round))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2 * self._channel.endpoint.patience_s):
                    await membership.until(lambda: membership.view.generation != mine.generation)
            membership.lost(coordinator, "it does not have the view renewed, though members heard different wishes")
        await membership.until(lambda: membership.view.generation != mine.generation)

    def _be_silent(self) -> None:
        self._differed = min(self._differed + 1, _WAITS_MAX)
        self._silent_to = self._state().round + (1 << self._differed)

    def _on_differ(self, envelope: Envelope) -> None:
        """Only where this peer has a wish itself: without one nobody can have granted anything."""
        told, mine, membership = envelope.message, self._mine, self._membership
        leads = membership.current(envelope, told.generation) and membership.coordinator == self._channel.endpoint.id
        if leads and mine is not None and mine.parameters and _same(told, mine):
            self._be_silent()
            membership.renew()

    def _has_told(self, peer: PeerId, mine: Wish) -> bool:
        return (told := self._told.get(peer)) is not None and _same(told, mine)

    def _hear(self, envelope: Envelope) -> None:
        wish, sender = envelope.message, envelope.sender
        if not self._counts(envelope):
            return
        self._told = self._kept(self._told, sender, wish)
        mine = self._mine
        asks = mine is not None and _same(wish, mine) and wish.parameters and not mine.parameters
        if asks and sender not in self._asked:
            self._asked.add(sender)
            self._channel.post(sender, mine)
        self._urge(wish)
        self._membership.notify()

    def _on_granted(self, envelope: Envelope) -> None:
        if self._counts(envelope):
            self._granted = self._kept(self._granted, envelope.sender, envelope.message)
            self._membership.notify()

    def _counts(self, envelope: Envelope) -> bool:
        """Whether a wish or a grant counts. One of a later generation does too: its sender may have gone on to that
        before this peer."""
        told, now = envelope.message, self._membership.view.generation
        check_sense(told.generation, now, "generation")
        try:
            from_bits(self._first, told.parameters)
        except ValueError as error:
            raise PeerMisbehaved(f"a wish of it cannot be: {error}") from None
        return told.generation > now or self._membership.current(envelope, told.generation)

    def _kept(self, known: Mapping[PeerId, T], sender: PeerId, new: T) -> dict[PeerId, T]:
        now = self._membership.view.generation
        kept = [(peer, told) for peer, told in known.items() if told.generation >= now and peer != sender]
        return {**dict(kept[1 - VIEW_MEMBERS_MAX :]), sender: new}

    def _urge(self, wish: Wish) -> None:
        """Find the parameters that at least half of the members wish for in the attempt of `wish`."""
        members = self._membership.view.ids
        wishes = [from_bits(self._first, self._told[peer].parameters) for peer in members if self._has_told(peer, wish)]
        half = {name for one in wishes for name in one if 2 * sum(name in other for other in wishes) >= len(members)}
        self._urged = in_order(self._first, {*self._urged, *half})


def _same(one: Wish | Granted | Differ, other: Wish | Granted | Differ) -> bool:
    """Whether two messages are of the same attempt."""
    return (one.generation, one.round) == (other.generation, other.round)
