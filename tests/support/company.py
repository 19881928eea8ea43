"""Simulated peers without models, for tests: whoever trains only adds a number of its own to the vector."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product

import torch
from simulated import LINK, endpoint_in, layout_of

from samovar.aggregation.codecs.registry import parse_codec
from samovar.aggregation.outer import Plain
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.periods.policy import PeriodPolicy
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.vector import Part
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Channel
from samovar.protocols.filling import Filling
from samovar.protocols.local_sgd.ends import Ends
from samovar.protocols.local_sgd.local_sgd import Contribution, LocalSGD, Outcome
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.local_sgd.state import State
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.members.membership import Membership, Terms
from samovar.protocols.members.messages import MEMBERS
from samovar.protocols.members.view import Attributes, Member
from samovar.protocols.meter import Meter
from samovar.protocols.stalls.messages import STALLS
from samovar.protocols.stalls.stalls import Stalls
from samovar.protocols.stalls.works import LOCAL_STEPS
from samovar.sims.world.network import Network


@dataclass
class Walker:
    """A simulated peer: it "trains" for a while, brings `state + stride` with its weight, and averages, to the end."""

    company: "Company"
    index: int
    stride: float
    weight: float
    train_s: float
    life: int = 0
    outcomes: list[Outcome] = field(default_factory=list)
    error: Exception | None = None
    finished: bool = False
    task: "asyncio.Task[None] | None" = None

    def __post_init__(self) -> None:
        company, name = self.company, f"p{self.index}"
        self.endpoint = endpoint_in(company.network, name, seed=self.life)
        site = company.sites[self.index % len(company.sites)]
        own = Attributes(site=site, data_shard=self.index)
        member = Member(self.endpoint.id, name, self.endpoint.address, own, 0, company.machine)

        terms = Terms(
            run="test",
            layout=company.layout.digest,
            model="test",
            founders=company.founders,
            quorum=company.quorum,
            give_up_after_s=company.give_up_after_s,
        )
        self.membership = Membership(
            Channel(self.endpoint, MEMBERS),
            member,
            terms,
            store=company.stores[self.index] if company.records else None,
            invitation=company.invitation,
        )
        self.sgd = LocalSGD(
            Channel(self.endpoint, LOCAL_SGD),
            self.membership,
            Stalls(Channel(self.endpoint, STALLS), self.membership, Meter(), lambda: self.sgd.state.round),
            layout=company.layout,
            schedule=lambda world: SCHEDULES[company.schedule],
            period=company.period,
            outer=Plain(),
            state=State(0, 0, torch.zeros(company.layout.size), (), company.period.start()),
            ends=Ends(steps=company.steps),
            buckets=company.buckets,
            uneven=company.uneven,
            codec=None if company.codec == "none" else parse_codec(company.codec),
            fragments=company.fragments,
        )
        self.sgd.stalls.patience_s = company.compute_patience_s

    @property
    def id(self) -> str:
        return self.endpoint.id

    @property
    def bits(self) -> tuple[int, bytes]:
        return self.sgd.state.round, self.sgd.state.vector.numpy().tobytes()

    def brings(self) -> Contribution:
        state = self.sgd.state
        loss, now, vector = 1.0 / (1 + state.round), asyncio.get_running_loop().time(), state.vector + self.stride
        filling = self._filled_with(vector) if self.company.buckets else None
        return Contribution(vector if filling is None else filling.vector, self.weight, loss, 0.1, now, filling)

    def _filled_with(self, vector: torch.Tensor) -> Filling:
        """Each bucket is there some time after the one before; until then it is nothing that one could go on with."""
        filling, buckets = Filling(torch.full_like(vector, torch.nan), len(self.company.buckets)), self.company.buckets

        def fill(number: int) -> None:
            start, stop = buckets[number]
            filling.vector[start:stop] = vector[start:stop]
            filling.fill(number)

        for number in range(len(buckets)):
            asyncio.get_running_loop().call_later(self.train_s * (1 + number) / 4, fill, number)
        return filling

    def start(self, contact: str | None) -> None:
        self.task = asyncio.create_task(self.walk(contact), name=f"peer {self.id}")

    async def walk(self, contact: str | None) -> None:
        try:
            await self.endpoint.open()
            for other in range(self.company.peers_max):
                self.endpoint.admit(f"p{other}")
            if contact is None:
                self.membership.found()
            else:
                self.endpoint.dial(contact, f"sim://{contact}")
                await self.sgd.enter(contact)
            await self.sgd.gather()
            while self.sgd.period:
                await self.step()
            await self.membership.finish()
            self.finished = True
            await self.endpoint.close()
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.error = error
        finally:
            self.membership.close()
            self.endpoint.abort()

    async def step(self) -> None:
        with self.sgd.stalls.at_work(LOCAL_STEPS, lambda: "in a test"):
            await asyncio.sleep(self.train_s)
        self.outcomes.append(await self.sgd.average(self.brings()))

    async def leave(self) -> None:
        """Go of one's own will, as soon as the others have let go."""
        await self.membership.leave("it has other plans")
        if self.task is not None:
            self.task.cancel()

    def crash(self) -> None:
        """Be gone from one moment to the next, without a word; unless it has ended anyway."""
        assert self.task is not None
        if not self.task.done():
            self.company.network.close(self.id)
            self.task.cancel()
            self.company.crashed.add(self.index)

    async def ended(self) -> None:
        assert self.task is not None
        await asyncio.wait([self.task])


class Shelf:
    """A peer's store, which outlives its process."""

    def __init__(self) -> None:
        self.entries: dict[str, bytes] = {}

    def load(self, name: str) -> bytes | None:
        return self.entries.get(name)

    async def save(self, name: str, entry: bytes) -> None:
        self.entries[name] = entry

    def clear(self) -> None:
        self.entries.clear()


class Company:
    """`n` simulated peers, of which the first founds the run; `rounds` rounds of 10 steps. `records`: each keeps one of
    its votes, for its next life."""

    def __init__(
        self,
        n: int,
        *,
        rounds: int = 2,
        size: int = 10,
        link: str = LINK,
        seed: int = 1,
        schedule: str = "ring",
        quorum: int | None = None,
        founders: int | None = None,
        period: PeriodPolicy | None = None,
        train_s: Callable[[int], float] = lambda index: 1.0 + 0.1 * index,
        buckets: Sequence[Part] = (),
        sites: Sequence[str] = ("",),
        uneven: bool = False,
        give_up_after_s: float | None = 60.0,
        records: bool = False,
        codec: str = "none",
        fragments: int = 1,
        machine: str = "",
        compute_patience_s: float | None = None,
        invitation: Invitation | None = None,
    ) -> None:
        self.give_up_after_s, self.records = give_up_after_s, records
        self.stores: defaultdict[int, Shelf] = defaultdict(Shelf)
        self.network = Network(parse_link(link), seed)
        self.layout = layout_of(size)
        self.founders, self.quorum, self.schedule = founders or n, quorum, schedule
        self.period, self.buckets, self.uneven = period or Fixed(10), buckets, uneven
        self.steps, self.sites = 10 * rounds, sites
        self.codec, self.fragments, self.machine = codec, fragments, machine
        self.compute_patience_s, self.invitation = compute_patience_s, invitation
        self.peers_max = n + 4
        self.crashed: set[int] = set()
        self.faults: Counter[str] = Counter()
        self._train_s = train_s
        self._cuts: list[tuple[str, str]] = []
        self.walkers = [self.walker(index) for index in range(n)]

    def walker(self, index: int, life: int = 0) -> Walker:
        return Walker(self, index, float(index + 1), float(index + 1), self._train_s(index), life)

    def __getitem__(self, index: int) -> Walker:
        return self.walkers[index]

    def add(self, index: int, contact: str, *, life: int = 0) -> Walker:
        """A peer that joins late, or, with another `life`, one that is started anew under its old name."""
        walker = self.walker(index, life)
        self.walkers.append(walker)
        walker.start(contact)
        return walker

    def start(self) -> None:
        for index, walker in enumerate(self.walkers):
            walker.start("p0" if index else None)

    async def gathered(self, rounds: int = 0) -> None:
        """Start all, and return when all are in the run and the founder has so many rounds."""
        self.start()
        await self.until(lambda: started(self))
        await self.until(lambda: self[0].sgd.state.round >= rounds)

    @property
    def survivors(self) -> list[Walker]:
        return [walker for walker in self.walkers if walker.task is not None and not walker.task.cancelled()]

    async def ended(self) -> None:
        """Wait until every peer has ended, one way or the other."""
        for walker in self.walkers:
            await walker.ended()

    async def over(self) -> None:
        """End every peer that still walks."""
        for walker in self.walkers:
            assert walker.task is not None
            walker.task.cancel()
        await self.ended()

    def part(self, *sides: Collection[str]) -> None:
        """Cut all ways between walkers of different `sides`."""
        for one, other in permutations(sides, 2):
            for way in product(one, other):
                self.cut(*way)

    def cut(self, sender: str, to: str) -> None:
        self.network.cut(sender, to)
        self._cuts.append((sender, to))

    def heal(self) -> None:
        """Join all ways that were cut."""
        while self._cuts:
            self.network.join(*self._cuts.pop())

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110  # the world is watched from outside
            await asyncio.sleep(0.05)

    async def run(self) -> "Company":
        self.start()
        await self.ended()
        return self

    def agree(self, walkers: list[Walker] | None = None) -> bytes:
        """All that survived finished without an error and with the same bits, which are returned."""
        walkers = self.survivors if walkers is None else walkers
        assert walkers
        assert [walker.error for walker in walkers] == [None] * len(walkers)
        assert all(walker.finished for walker in walkers)
        assert len({walker.bits for walker in walkers}) == 1, [walker.bits for walker in walkers]
        return walkers[0].bits[1]


def started(company: Company) -> bool:
    return all(walker.membership.view.started for walker in company.walkers)


def moved(walkers: list[Walker]) -> float:
    """By how much one round moves the common vector: the weighted mean of what these bring."""
    return sum(walker.weight * walker.stride for walker in walkers) / sum(walker.weight for walker in walkers)


def value(walker: Walker) -> float:
    return float(walker.sgd.state.vector[0])


def assert_one_truth(company: Company) -> None:
    """No two peers ever committed different results for the same round."""
    results: dict[int, set[bytes]] = {}
    for walker in company.walkers:
        for outcome in walker.outcomes:
            results.setdefault(outcome.state.round, set()).add(outcome.state.vector.numpy().tobytes())
    assert {round: len(different) for round, different in results.items() if len(different) > 1} == {}
