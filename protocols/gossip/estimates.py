"""The estimates from which encoded differences lead on: this peer's own, which its takers have, and its givers'.

A difference leads on from the giver's estimate of the round before, or from any other estimate that giver and taker
both hold, which it names by a hash of its bytes. So a peer need not send its vector whole where the taker holds the
vector from which the peer began:

    all peers begin with one model                each begins with that as the estimate of all
    a newcomer goes on from a neighbour's model   that is its own estimate, and its neighbour's estimate of it
    a newcomer is a taker for the first time      the giver's own estimate begins anew at the newcomer's vector, if all
                                                  its takers have that one

In all other cases the taker does not hold that estimate, and asks for the vector as it is.
Source: Koloskova et al., 2019 (`differences`), in whose Algorithm 2 all estimates begin as 0.
Cost: memory for one vector of each giver, and a hash in rounds in which a peer begins an estimate anew.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import torch
from torch import Tensor

from ..offload import off_loop
from ..testpoints import sometimes, witness
from ..transport import PeerId
from .algorithms.differences import Differences
from .messages import NEWEST, Form, Published, Want

_HASH_BYTES = 16


@dataclass(frozen=True, slots=True)
class Estimated:
    """Event for a simulation's checkers: a peer has `vector` [n] as its estimate of what `giver` published in
    `round`."""

    giver: PeerId
    round: int
    vector: Tensor


class Estimate:
    """A vector [n] that a peer published in `round`, as its takers have it. `round`: None where it is the vector
    of another peer. Nobody writes to the vector any more."""

    def __init__(self, vector: Tensor, round: int | None = None) -> None:
        self.vector, self.round = vector, round
        self._hash = b""

    def hash(self) -> bytes:
        """A hash of the vector's bytes, 16 bytes, made at the first call."""
        if not self._hash:
            flat = self.vector.detach().view(torch.uint8).numpy()
            self._hash = blake2b(flat.data, digest_size=_HASH_BYTES).digest()
        return self._hash


class Estimates:
    """One peer's estimates. `differences` encodes these; `first`: the vector with which this peer begins."""

    def __init__(self, differences: Differences, first: Published) -> None:
        self.differences = differences
        self._own = Estimate(first.vector, first.round)
        self._begun: Estimate | None = self._own
        """The estimate with which this peer began, until it has one of each giver: a neighbour may have begun with the
        same."""
        self._has_moved = False
        """Whether this peer's own estimate is another than that with which it began."""
        self._of: dict[PeerId, Estimate] = {}
        self._met: set[PeerId] = set()
        """The takers that have an estimate of this peer's vector, or were offered one."""
        self._hashing = asyncio.Lock()
        """Held while vectors are hashed: else several threads would hash the same ones."""
        self._decoding = asyncio.Lock()
        """Held while an estimate is made, until the one before it can go: else a peer would hold two of each giver."""
        self._spared: set[PeerId] | None = None
        """After this peer has gone on from another's model: the givers that it has spared since; None: it has not."""

    # Giving

    async def published(
        self, one: Published, me: PeerId, takers: Collection[PeerId], is_taken_by: Callable[[PeerId], bool]
    ) -> Published:
        """Encode the vector `one`, which the peer `me` is about to publish. Returns it as takers get it: the estimate
        of the vector in place of the vector, with the encoded difference that leads to this estimate, which is this
        peer's own estimate from now on. `takers`: the peers that take it; `is_taken_by` returns, for one taker, whether
        all other takers take that one's vector too. Raises ValueError for a vector that the codec does not take."""
        before, anew = self._base(takers, is_taken_by)

        def work() -> Published:
            vector, difference = self.differences.encoded(before.vector, one.vector, one.round, me)
            base = before.hash() if anew else b""
            return Published(
                one.round, one.step, vector, one.told, one.last, difference, None if anew else before.round, base
            )

        found = await off_loop(2 * one.vector.nbytes, work)
        self._own, self._has_moved = Estimate(found.vector, found.round), True
        return found

    def _base(self, takers: Collection[PeerId], is_taken_by: Callable[[PeerId], bool]) -> tuple[Estimate, bool]:
        """The estimate from which this peer's next difference leads on, and whether its takers know it by its hash
        only."""
        new = sorted(peer for peer in takers if peer not in self._met and peer in self._of)
        self._met.update(new)
        if not self._has_moved:
            return self._own, True
        for peer in new:
            if is_taken_by(peer):
                sometimes("an estimate began anew at a newcomer's")
                return self._of[peer], True
        return self._own, False

    def gave(self, taker: PeerId, one: Published, want: Want) -> None:
        """Note that `taker` was given the vector `one` in the form of its question `want`; if it can have an estimate
        of this peer's vector by that, it is no new taker any more (`published`). A taker that asked for the newest
        vector whole is a newcomer: this peer then takes that vector for the newcomer's estimate too."""
        if want.form == Form.WHOLE and want.round == NEWEST:
            self._of[taker] = Estimate(one.vector)
        if want.form == Form.WHOLE or one.base or want.holds in (one.before, one.round):
            self._met.add(taker)

    # Taking

    def round_of(self, giver: PeerId) -> int | None:
        """The round of the vector of `giver` of which this peer has the estimate; None: it has none, or one that is the
        vector of another peer."""
        known = self._of.get(giver)
        return None if known is None else known.round

    async def found(self, giver: PeerId, before: int | None, base: bytes) -> Tensor | None:
        """The vector [n] from which a difference of `giver` leads on: that of its round `before`, or the one with the
        hash `base`. None: this peer does not hold it."""
        if not base:
            known = self._of.get(giver)
            return known.vector if known is not None and before is not None and known.round == before else None
        async with self._hashing:
            held = [*self._held(giver)]
            most = sum(one.vector.nbytes for one in held)
            return await off_loop(most, lambda: next((one.vector for one in held if one.hash() == base), None))

    async def leads_to(self, before: Tensor, difference: Tensor) -> Tensor:
        """The estimate [n] to which `difference` leads from `before` [n]. Raises ValueError when the codec does not
        decode it."""
        async with self._decoding:
            return await off_loop(2 * before.nbytes, lambda: self.differences.decoded(before, difference))

    def spares(self, giver: PeerId) -> bool:
        """Whether this peer leaves the vector of `giver` out of this mix, rather than ask for it whole, although it
        cannot use the difference. True once for each giver after this peer has gone on from another peer's model:
        `giver` is likely to begin its estimate anew in the next round."""
        if self._spared is None or giver in self._spared:
            return False
        self._spared.add(giver)
        return True

    def took(self, giver: PeerId, one: Published) -> None:
        """Store the vector in `one` as this peer's estimate of the vector of `giver`."""
        witness(Estimated(giver, one.round, one.vector))
        self._of[giver] = Estimate(one.vector, one.round)

    def goes_on_from(self, one: Published) -> None:
        """Note that this peer goes on from the model `one` of a neighbour: from now on that model is the estimate of
        this peer's own vector."""
        self._own = self._begun = Estimate(one.vector)
        self._has_moved, self._spared = False, set()

    def only(self, givers: Collection[PeerId]) -> None:
        """Forget the estimates of all but these peers."""
        for peer in self._of.keys() - givers:
            self.forget(peer)
        if self._of.keys() >= {*givers}:
            self._begun = None

    def forget(self, peer: PeerId) -> None:
        self._of.pop(peer, None)
        self._met.discard(peer)

    def _held(self, giver: PeerId) -> Iterator[Estimate]:
        """All estimates, those first whose hashes are made or are needed most often."""
        yield from (one for one in (self._begun, self._of.get(giver), self._own, *self._of.values()) if one is not None)
