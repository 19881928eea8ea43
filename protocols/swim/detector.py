"""The failure detector: which members a peer probes in each period, and through which helpers.

Each peer probes one member in a period, in a random order that it draws anew when it has come to the end: so the time
between two probes of a member by one peer is bounded, by 2n - 1 periods. Suspects are probed beside the member whose
turn it is. A probe without an answer is repeated through helpers, which are other members that probe the target and
tell the result: their connections to it may work where this peer's do not.

Source: Das, Gupta and Motivala, DSN 2002, sections 3.1 and 4.3.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from ..transport import PeerId
from .timing import Timing

_ERRANDS_MAX = 64


@dataclass(slots=True, eq=False)
class Attempt:
    """One probe of `target`, begun at `began_s` on the loop's clock. `answered`: the target has answered this peer or a
    helper. `helpers`: the peers that were asked for help; `helped`: one of them has answered, even if only that the
    target did not answer it."""

    number: int
    target: PeerId
    began_s: float
    answered: bool = False
    helpers: tuple[PeerId, ...] = ()
    helped: bool = False


@dataclass(frozen=True, slots=True)
class Errand:
    """A probe of `target` that this peer makes on request of `asker`, whose own probe has the number `number`. It waits
    for the answer until `until_s`, on the loop's clock."""

    asker: PeerId
    number: int
    target: PeerId
    until_s: float


class Detector:
    """One peer's probes: its own, and those on request of others. It sends nothing; `Swim` does."""

    def __init__(self, timing: Timing, chance: random.Random) -> None:
        self._timing, self._chance = timing, chance
        self._order: list[PeerId] = []
        self._urgent: dict[PeerId, None] = {}
        """Members to be probed beside the regular order, each in turn."""
        self._number = chance.getrandbits(30)
        self._open: dict[int, Attempt] = {}
        self._errands: OrderedDict[int, Errand] = OrderedDict()
        self.probes = 0
        """Probes so far, without those for others."""

    # Whom

    def joins(self, peer: PeerId) -> None:
        """Put the new member `peer` at a random place of the present order."""
        self._order.insert(self._chance.randint(0, len(self._order)), peer)

    def hasten(self, peer: PeerId) -> None:
        """Probe `peer` beside the member whose turn it is, until `calm`: in each period, or in turn with others where
        more are to be probed so than `Timing.extra`."""
        self._urgent.setdefault(peer)

    def calm(self, peer: PeerId) -> None:
        """Probe `peer` only when it is its turn again."""
        self._urgent.pop(peer, None)

    def targets(self, members: Collection[PeerId]) -> list[PeerId]:
        """Choose the members to probe in a new period: the one whose turn it is, and those that are to be hastened,
        `Timing.extra` at most. `members`: all that this peer may probe. Empty if there are none."""
        chosen: list[PeerId] = []
        while members and not chosen:
            if not self._order:
                self._order = list(members)
                self._chance.shuffle(self._order)
            if (peer := self._order.pop()) in members:
                chosen.append(peer)
        for peer in list(self._urgent):
            if len(chosen) > self._timing.extra:
                break
            del self._urgent[peer]
            if peer in members:
                self._urgent[peer] = None  # the last in turn
                chosen += [] if peer in chosen else [peer]
        return chosen

    # Probes

    def begin(self, target: PeerId, now_s: float) -> int:
        """Begin to probe `target`. Returns the probe's number."""
        self._number += 1
        self._open[self._number] = Attempt(self._number, target, now_s)
        self.probes += 1
        return self._number

    def unanswered(self) -> list[Attempt]:
        """This peer's own probes of the period whose targets have not answered so far, neither this peer nor a helper.
        An answer of another life of the target does not count. Probes on request of others (`Errand`) are not among
        them."""
        return [one for one in self._open.values() if not one.answered]

    def answered(self, number: int, sender: PeerId, *, known: bool) -> Errand | None:
        """Note that `sender` has answered the probe `number`. `known`: the answer is of the life of `sender` that this
        peer knows, not of another one under its key. Returns the errand for which the probe was made, and forgets it;
        None: it was this peer's own probe, or there is no such probe of `sender`."""
        attempt = self._open.get(number)
        if attempt is not None and attempt.target == sender and known:
            attempt.answered = True
        errand = self._errands.get(number)
        if errand is None or errand.target != sender:
            return None
        return self._errands.pop(number)

    def asked_for(self, number: int, helper: PeerId) -> PeerId | None:
        """The target of the probe `number`, if `helper` was asked for help with it; else None."""
        attempt = self._open.get(number)
        return None if attempt is None or helper not in attempt.helpers else attempt.target

    def is_open(self, number: int) -> bool:
        """Whether `number` is that of one of this peer's own probes of this period, and its target has not answered so
        far."""
        return number in self._open and not self._open[number].answered

    def helped(self, number: int, *, there: bool) -> None:
        """Note that a helper has answered for the probe `number` of this period. `there`: the target has answered the
        helper. The caller has checked by `asked_for` that there is such a probe."""
        attempt = self._open[number]
        attempt.helped = True
        attempt.answered = attempt.answered or there

    def end(self) -> list[Attempt]:
        """End the period: forget this peer's own probes in it, and return them. Probes for others (`Errand`) go on."""
        ended = list(self._open.values())
        self._open.clear()
        return ended

    def choose_helpers(self, attempt: Attempt, among: Iterable[PeerId]) -> None:
        """Draw the helpers of a probe from the peers in `among` but its target: `Timing.helpers` of them, or all if
        there are fewer. They are set in `attempt`."""
        others = [peer for peer in among if peer != attempt.target]
        attempt.helpers = tuple(self._chance.sample(others, min(len(others), self._timing.helpers)))

    # For others

    def errand(self, asker: PeerId, number: int, target: PeerId, now_s: float) -> int | None:
        """Note that this peer is to probe `target` for `asker`, whose probe has the number `number`. Returns the number
        for the probe; None: this peer is making too many such probes already."""
        if len(self._errands) >= _ERRANDS_MAX:
            return None
        self._number += 1
        self._errands[self._number] = Errand(asker, number, target, now_s + self._timing.direct * self._timing.period_s)
        return self._number

    def expired_errands(self, now_s: float) -> list[Errand]:
        """Remove and return the errands whose targets have not answered in time."""
        over = [number for number, errand in self._errands.items() if errand.until_s <= now_s]
        return [self._errands.pop(number) for number in over]

    @property
    def next_errand_s(self) -> float | None:
        """The time, on the loop's clock, at which the next errand is over; None: there is none."""
        return next((errand.until_s for errand in self._errands.values()), None)
