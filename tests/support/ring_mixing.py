"""Ring mixing: a conversation in one file, as a user may write it (`--protocol tests/support/ring_mixing.py`).

Every peer takes `mix_every` local steps and then mixes its model with those of its two neighbours in the ring of all
peers, which it fetches as they are at that moment. Nobody waits for anybody's local steps:

    x_i <- s x_i + (1 - s) mean_j x_j,    j: the neighbours of i that answer, s: `own_share`
"""

import asyncio
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from samovar.peers.conversations.registry import Registered, Setup
from samovar.peers.settings import validators as rules
from samovar.peers.settings.fields import OwnSettings, setting
from samovar.protocols.channel import Channel
from samovar.protocols.conversation import Came, Outcome, Position
from samovar.protocols.link.link import PeerLost
from samovar.protocols.members.errors import Expelled, NoQuorum
from samovar.protocols.members.joining import Entry
from samovar.protocols.testpoints import witness
from samovar.protocols.transfer.snapshot import Expected, Snapshot, bytes_max, unpack
from samovar.protocols.transfer.snapshot_transfer import Donor, fetch
from samovar.protocols.transport import PeerId
from samovar.protocols.wire.frames import PeerMisbehaved
from samovar.protocols.work import Evaluate, Keep, Load, Steps, Update, Work
from samovar.sims.conversations.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class RingSettings(OwnSettings):
    mix_every: int = setting(8, rules.whole(1, 10_000), "Local steps between two mixes.", agreed=True)
    own_share: float = setting(0.5, rules.share(), "Share of a peer's own model in a mix.", agreed=True)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Event for the checker: a peer has mixed for the time `version`, with so many neighbours."""

    version: int
    neighbours: int


class RingMixing:
    needs = frozenset({"steps"})
    bytes_shared = 0

    def __init__(self, setup: Setup) -> None:
        self._own, self._members, self._clock = RingSettings.of(setup.settings), setup.membership, setup.clock
        self._channel, self._entry = Channel(setup.endpoint, "ring"), Entry(setup.endpoint, setup.membership)
        self._resumed, self._facts, self._steps = setup.resumed is not None, setup.facts, setup.steps
        self._vector, self.version, self._step, self._taken = setup.facts.vector, 0, 0, 0
        if setup.resumed is not None:
            self._vector = setup.resumed.tensors["ring/vector"]
            self.version, self._step = setup.resumed.numbers["ring"]
        self._begin: Load | Keep = Load(self._vector)
        self._job: Steps | Evaluate = Steps(0)
        self._over = False
        self._expected = {"model": Expected(setup.facts.layout.dtype, setup.facts.layout.size)}
        Donor(self._channel, lambda: Snapshot(self.version, {"model": self._vector}, []))

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        if contact is None:
            self._members.found()
        else:
            await self._entry.enter(contact)
        await self._inside()
        if self._resumed:
            self._begin, self._taken = Keep(), steps
        self._clock.start()
        return "resumed" if self._resumed else "started"

    async def _inside(self) -> None:
        """Wait until this peer is a member and enough have gathered; join again if the others went on without it."""
        try:
            async with asyncio.timeout(self._members.terms.give_up_after_s):
                while not self._members.settled:
                    try:
                        await self._members.until(lambda: self._members.settled)
                    except Expelled as expelled:
                        await self._entry.come_back(expelled)
        except TimeoutError:
            raise NoQuorum("too few peers are left to mix with") from None

    async def next(self) -> Work | None:
        every = self._own.mix_every
        left = every if self._steps is None else min(every, self._steps - self._step)
        if not self._over and left > 0:
            self._job = Steps(left - self._taken, self._taken, left)
        elif isinstance(self._job, Steps) and "evaluation" in self._facts.can:
            self._job = Evaluate(self._vector)
        else:
            return None
        return Work(self._begin, self._job)

    async def bring(self, update: Update) -> Outcome | None:
        if isinstance(self._job, Evaluate):
            return None
        self._over, began_s = update.final, self._clock.elapsed_s
        await self._inside()
        models = await asyncio.gather(*map(self._model_of, self._neighbours))
        theirs = [model for model in models if model is not None]
        share = self._own.own_share if theirs else 1.0
        others = torch.stack(theirs).mean(0) if theirs else update.vector
        self._vector = torch.lerp(others, update.vector, share)
        self.version, self._step, self._taken = self.version + 1, self._step + update.steps, 0
        self._begin = Load(self._vector)
        witness(Mixed(self.version, len(theirs)))
        return Outcome(
            version=self.version,
            step=self._step,
            loss=update.loss,
            members=1 + len(theirs),
            steps=update.steps - (self._job.taken if isinstance(self._job, Steps) else 0),
            compute_s=update.seconds,
            transfer_s=self._clock.elapsed_s - began_s,
            details={"neighbours": len(theirs)},
            model_bytes=update.vector.nbytes if theirs else 0,
            last=self._over or self._step == self._steps,
        )

    @property
    def _neighbours(self) -> set[PeerId]:
        ids, me = self._members.view.ids, self._members.me.id
        place = ids.index(me)
        return {ids[place - 1], ids[(place + 1) % len(ids)]} - {me}

    async def _model_of(self, peer: PeerId) -> Tensor | None:
        """The neighbour's model; None: it has left, or does not answer, or not with a model."""
        size_max, kept, blob = bytes_max(self._expected), dict[bytes, bytes](), None
        try:
            async with self._members.only_while(lambda: peer in self._members.view.ids):
                blob = await fetch(
                    self._channel, peer, version=self.version, check=lambda version: None, size_max=size_max, kept=kept
                )
            return None if blob is None else unpack(blob, self._expected).tensors["model"]
        except (PeerLost, PeerMisbehaved, Expelled):
            return None

    async def finish(self) -> None:
        while True:
            try:
                return await self._members.finish()
            except Expelled as expelled:
                await self._entry.come_back(expelled)

    async def leave(self, why: str) -> None:
        await self._members.leave(why)

    async def settle(self) -> Sequence[Outcome]:
        return []

    def position(self) -> Position:
        numbers = {"ring": [self.version, self._step]}
        tensors = {"ring/vector": self._vector}
        return Position(self.version, self._vector, tensors, numbers, self._begin, own_model=True)

    def close(self) -> None:
        pass


# What the library is told


def mixes_are_counted_one_by_one(scenario: Any, entries: Sequence[Any]) -> Iterator[str]:
    last: dict[str, int] = {}
    for _, life, event in entries:
        if isinstance(event, Mixed):
            if life in last and event.version != last[life] + 1:
                yield f"{life} mixed for the time {event.version} after {last[life]}"
            last[life] = event.version


def draw(chance: random.Random, seed: int, groups: Sequence[Any]) -> Mapping[str, Any]:
    return {"mix_every": chance.choice((1, 2, 4, 8)), "own_share": chance.choice((0.0, 0.34, 0.5, 0.9))}


SIMULATION = Simulation(
    checkers=(mixes_are_counted_one_by_one,),
    draw=draw,
    steps_an_exchange=lambda settings: RingSettings.of(settings).mix_every,
    simpler=({"mix_every": 1}, {"own_share": 0.5}),
)
CONVERSATION = Registered(
    settings=RingSettings,
    build=RingMixing,
    ends_together=False,
    columns={"neighbours": "Neighbours"},
    simulation=__name__,
)
