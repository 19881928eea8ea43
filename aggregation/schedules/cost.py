"""How long an allreduce takes by any schedule on any links, and which schedule is the fastest.

Source: the alpha-beta-gamma model of Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH" (IJHPCA 2005, section 3), with a fixed cost for each message as in LogP (Culler et al., PPoPP 1993,
section 3). The model is evaluated transfer by transfer, so it also holds for unequal links and parts, and for any
number of ranks.

    paper   here
    alpha   alpha_s: seconds from one end of a way to the other; that of a way is the larger of its two ends'
    beta    1 / up_Bps and 1 / down_Bps: seconds a byte for sending and for receiving, both at once
    gamma   gamma_s_per_byte: seconds to add one byte
    o       overhead_s: seconds that each chunk keeps its sender's up-link and its receiver's down-link busy besides
    n, p    size_bytes, links.world

The alpha of the papers' formulas is split here: messages overlap for alpha_s, but queue up for overhead_s. With all of
alpha in overhead_s and chunks as large as the vector, the predicted seconds are those of the line "Cost" in each
schedule's module, except that additions overlap with the next message. With smaller chunks more work overlaps, and the
allreduce is faster.

Messages leave in the order of the steps: those to one rank one after another, those to different ranks alternate chunk
by chunk. A chunk is sent on as soon as it has arrived and been added.
Cost: linear in messages and parts. Lost packets and random delays are not modelled.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple, Self

from ..vector import parts
from .messages import Message, messages
from .schedule import Schedule
from .sharded import Sharded


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """The links of all ranks, and the costs that are equal for all of them: the letters are those of the module.
    `alpha_s`, `up_Bps`, `down_Bps`: by rank, its latency in seconds, and the bytes a second that it can send and
    receive. Raises ValueError unless each rank, one at least, has one of each, times are finite and not negative, and
    rates positive and finite."""

    alpha_s: tuple[float, ...]
    up_Bps: tuple[float, ...]
    down_Bps: tuple[float, ...]
    gamma_s_per_byte: float = 0.0
    overhead_s: float = 0.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.alpha_s) == len(self.up_Bps) == len(self.down_Bps):
            raise ValueError("every rank has one alpha, one up-link and one down-link, and there is one rank at least")
        if not all(0 <= time < math.inf for time in (*self.alpha_s, self.gamma_s_per_byte, self.overhead_s)):
            raise ValueError("times must be finite and not negative")
        if not all(0 < rate < math.inf for rate in (*self.up_Bps, *self.down_Bps)):
            raise ValueError("rates must be positive and finite")

    @classmethod
    def uniform(
        cls, world: int, *, alpha_s: float, Bps: float, gamma_s_per_byte: float = 0.0, overhead_s: float = 0.0
    ) -> Self:
        """The links of ``world`` ranks that all have the same ``alpha_s``, and the same rate ``Bps`` up and down."""
        alphas, rates, gamma_s = (alpha_s,) * world, (Bps,) * world, gamma_s_per_byte
        return cls(alpha_s=alphas, up_Bps=rates, down_Bps=rates, gamma_s_per_byte=gamma_s, overhead_s=overhead_s)

    @property
    def world(self) -> int:
        return len(self.alpha_s)


_BETTER = 0.9


class Sent(NamedTuple):
    """One message in a predicted allreduce. ``start_s``: when its first byte may leave; ``end_s``: when its last byte
    has arrived and been added; ``adds``: whether the receiver adds any of it. Seconds count from the allreduce's start.
    """

    step: int
    sender: int
    receiver: int
    bytes: int
    start_s: float
    end_s: float
    adds: bool


class Prediction(NamedTuple):
    """The predicted ``seconds`` of an allreduce by a schedule. ``shares``: relative sizes of the vector's parts; None:
    equal."""

    schedule: Schedule
    seconds: float
    shares: tuple[float, ...] | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The predictions for all schedules, in the order given, and the ``best`` of them, which is the first of those that
    are equally fast."""

    best: Prediction
    predictions: tuple[Prediction, ...]

    @property
    def steady(self) -> Prediction:
        """The prediction of the first schedule given, unless another takes a tenth less time: then `best`. So nearly
        equal predictions do not change the choice."""
        usual = self.predictions[0]
        return self.best if self.best.seconds < _BETTER * usual.seconds else usual


def predict(
    schedule: Schedule, links: Links, size_bytes: int, chunk_bytes: int, shares: Sequence[float] | None = None
) -> float:
    """Seconds that an allreduce of ``size_bytes`` by ``schedule`` takes, in chunks of ``chunk_bytes``: until the last
    message has arrived and been added; 0 if there is none. ``shares``: relative sizes of the vector's parts; None:
    equal. Raises ValueError as `timeline`, on a negative size and on chunks below 1 byte."""
    return max((sent.end_s for sent in timeline(schedule, links, size_bytes, chunk_bytes, shares)), default=0.0)


def choose(
    schedules: Iterable[Schedule],
    links: Links,
    size_bytes: int,
    chunk_bytes: int,
    shares: Sequence[float] | None = None,
) -> Choice:
    """Predicts all ``schedules`` for a vector of ``size_bytes`` that is sent in chunks of ``chunk_bytes``. With
    ``shares``, one for each rank, the sharded schedule is predicted with equal parts and with these, and the better
    prediction counts; in other schedules no part belongs to one rank. Raises ValueError on no schedules."""
    predictions = []
    for schedule in schedules:
        cuts: list[tuple[float, ...] | None] = [None]
        if shares is not None and isinstance(schedule, Sharded):
            cuts.append(tuple(shares))
        found = (Prediction(schedule, predict(schedule, links, size_bytes, chunk_bytes, cut), cut) for cut in cuts)
        predictions.append(min(found, key=lambda prediction: prediction.seconds))
    if not predictions:
        raise ValueError("there is no schedule to choose from")
    return Choice(min(predictions, key=lambda prediction: prediction.seconds), tuple(predictions))


def timeline(
    schedule: Schedule, links: Links, size_bytes: int, chunk_bytes: int, shares: Sequence[float] | None = None
) -> Iterator[Sent]:
    """Every message of an allreduce by ``schedule`` on ``links`` with its predicted times, step by step. ``shares``:
    relative sizes of the vector's parts; None: equal. Messages without a byte are left out. Raises ValueError on a
    negative ``size_bytes`` and on ``chunk_bytes`` below 1."""
    if size_bytes < 0 or chunk_bytes < 1:
        raise ValueError(f"cannot send {size_bytes} bytes in chunks of {chunk_bytes}")
    world = links.world
    cut = parts(size_bytes, schedule.parts(world), shares)
    walk = _Walk(links, [stop - start for start, stop in cut], chunk_bytes)
    return chain.from_iterable(walk.take(step, sent) for step, sent in enumerate(messages(schedule, world)))


class _Port:
    """One end of a link, or a processor: its waiting messages alternate chunk by chunk."""

    __slots__ = ("busy_s", "next_s")

    def __init__(self) -> None:
        self.next_s = self.busy_s = 0.0

    def take(self, when_s: float, first_s: float, all_s: float) -> float:
        """Serve a message that may begin at ``when_s`` and takes ``all_s``, its first chunk ``first_s``. Returns when
        it does begin; ``next_s`` is then when its first chunk has been served, and ``busy_s`` when all has."""
        begin_s = when_s if when_s > self.next_s else self.next_s
        self.next_s = begin_s + first_s
        self.busy_s = (begin_s if begin_s > self.busy_s else self.busy_s) + all_s
        return begin_s


class _Walk:
    """The state of all ranks while the steps are walked: for each part at each rank, when its first chunk and when all
    of it is ready to be sent on."""

    def __init__(self, links: Links, sizes: Sequence[int], chunk_bytes: int) -> None:
        self._links, self._sizes, self._chunk_bytes = links, sizes, chunk_bytes
        self._there = [[(0.0, 0.0)] * len(sizes) for _ in range(links.world)]
        self._up, self._down, self._adder = ([_Port() for _ in range(links.world)] for _ in range(3))
        self._streams: dict[tuple[int, int], tuple[float, float]] = {}

    def take(self, step: int, messages: Sequence[Message]) -> list[Sent]:
        taken: list[Sent] = []
        sizes, gamma_s = self._sizes, self._links.gamma_s_per_byte
        news: list[tuple[int, int, tuple[float, float], bool]] = []
        for sender, receiver, moved, added in messages:
            total = sizes[moved[0]] if len(moved) == 1 else sum(sizes[part] for part in moved)
            if not total:
                continue
            chunk = min(self._chunk_bytes, total)
            start_s, first_s, last_s = self._carry(sender, receiver, moved, total, chunk)
            if added and gamma_s:
                size, adder = sum(sizes[part] for part in added), self._adder[receiver]
                adder.take(first_s, gamma_s * min(chunk, size), gamma_s * size)
                first_s, last_s = adder.next_s, max(adder.busy_s, last_s + gamma_s * min(size, _rest(total, chunk)))
            taken.append(Sent(step, sender, receiver, total, start_s, last_s, bool(added)))
            if len(moved) == 1:
                news.append((receiver, moved[0], (first_s, last_s), bool(added)))
            else:
                there = zip(moved, self._spread(moved, total, chunk, first_s, last_s), strict=True)
                news += [(receiver, part, when_s, part in added) for part, when_s in there]
        for rank, part, when_s, adds in news:  # a step sends the values from before it
            if adds:
                was_s = self._there[rank][part]
                when_s = max(when_s[0], was_s[0]), max(when_s[1], was_s[1])
            self._there[rank][part] = when_s
        return taken

    def _carry(
        self, sender: int, receiver: int, moved: tuple[int, ...], total: int, chunk: int
    ) -> tuple[float, float, float]:
        """When a message leaves, when its first chunk arrives, and when its last chunk does."""
        links, up, down, way = self._links, self._up[sender], self._down[receiver], (sender, receiver)
        up_Bps, down_Bps, overhead_s = links.up_Bps[sender], links.down_Bps[receiver], links.overhead_s
        alpha_s = max(links.alpha_s[sender], links.alpha_s[receiver])
        all_overhead_s = overhead_s * -(-total // chunk)
        ready_s, complete_s = self._ready(sender, moved, total, chunk, min(up_Bps, down_Bps))
        sent_before_s, got_before_s = self._streams.get(way, (0.0, 0.0))
        start_s = up.take(max(ready_s, sent_before_s), overhead_s + chunk / up_Bps, all_overhead_s + total / up_Bps)
        down.take(
            max(start_s + alpha_s, got_before_s), overhead_s + chunk / down_Bps, all_overhead_s + total / down_Bps
        )
        left_s = max(up.busy_s, complete_s)
        first_s = max(up.next_s + alpha_s, down.next_s)
        last_s = max(first_s, down.busy_s, left_s + alpha_s)
        self._streams[way] = left_s, last_s
        return start_s, first_s, last_s

    def _ready(
        self, sender: int, moved: tuple[int, ...], total: int, chunk: int, rate_Bps: float
    ) -> tuple[float, float]:
        """When the sender has the first chunk, and when it could have sent the last one if nothing else delayed it."""
        there, overhead_s = self._there[sender], self._links.overhead_s
        if len(moved) == 1:
            first_s, last_s = there[moved[0]]
            return last_s if total == chunk else first_s, last_s + overhead_s + _rest(total, chunk) / rate_Bps
        ready_s = complete_s = 0.0
        stop = 0
        for part in moved:
            if size := self._sizes[part]:
                start, stop = stop, stop + size
                first_s, last_s = there[part]
                if start < chunk:
                    ready_s = max(ready_s, last_s if stop <= chunk else first_s)
                left = total - (stop - 1) // chunk * chunk
                complete_s = max(complete_s, last_s + overhead_s * -(-left // chunk) + left / rate_Bps)
        return ready_s, complete_s

    def _spread(
        self, moved: tuple[int, ...], total: int, chunk: int, first_s: float, last_s: float
    ) -> Iterator[tuple[float, float]]:
        """For each part of a message, when its first chunk arrives, and when all of it."""
        pace_s = (last_s - first_s) / (total - chunk) if total > chunk else 0.0
        stop = 0
        for part in moved:
            start, stop = stop, stop + self._sizes[part]
            yield first_s + pace_s * max(0, min(start, stop - chunk)), first_s + pace_s * max(0, stop - chunk)


def _rest(total: int, chunk: int) -> int:
    """The size of the last chunk."""
    return (total - 1) % chunk + 1
