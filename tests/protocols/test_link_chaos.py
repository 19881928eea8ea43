"""Two endpoints in any chaos: each message comes once, in order, and to the incarnation for which it was meant."""

import asyncio
import random
from collections import Counter, defaultdict

from conformance import Parcel, Postcard, ask, over, solve
from post import Post, opened

from samovar.protocols.channel import Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.link import PeerLost
from samovar.protocols.transport import PeerId
from samovar.sims.world.loop import run_virtual


class Chaos:
    """Two peers that send, forget, dial, and restart, each at any moment."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.post = Post(random.Random(seed + 1))
        self.peers: dict[str, Endpoint] = {}
        self.last: dict[tuple[int, int, type], int] = defaultdict(int)
        self.meant_for: dict[int, int] = {}
        self.happened = Counter[str]()
        self.sent = 0
        self.sending: list[asyncio.Task] = []

    async def start(self, name: str) -> None:
        endpoint = await opened(self.post, name, self.rng.randrange(2**32))
        self.peers[name] = endpoint
        endpoint.on_lost.append(lambda peer, why: self.happened.update(["lost"]))
        for kind in (Parcel, Postcard):
            over(endpoint).on(kind, lambda envelope: self.arrived(endpoint, envelope))
        solve(endpoint)

    def arrived(self, here: Endpoint, envelope: Envelope) -> None:
        """Once, in order, and if its sender knew for which incarnation it was, then for this one."""
        n, kind = envelope.message.n, type(envelope.message)
        assert n > self.last[id(here), n >> 32, kind], "twice, or out of order"
        self.last[id(here), n >> 32, kind] = n
        assert self.meant_for[n] in (0, here.links.known(envelope.sender).incarnation), "meant for a past self"
        self.happened["arrived"] += 1
        envelope.done()

    def send(self, here: Endpoint, there: PeerId) -> None:
        self.sent += 1
        n = (id(here) % (1 << 30) << 32) + self.sent

        def remember() -> None:
            link = here.links.get(there)
            self.meant_for[n] = link.towards if link is not None and link.lost is None else 0

        async def ship(size: int) -> None:
            remember()
            await over(here).send(there, Parcel(n), bytes(size))

        if self.rng.random() < 0.5:
            remember()
            over(here).post(there, Postcard(n))
        else:
            self.sending.append(asyncio.create_task(ship(self.rng.choice([10, 50_000]))))

    async def act(self) -> None:
        name = self.rng.choice("ab")
        here, there = self.peers[name], "ba"["ab".index(name)]
        act = self.rng.choices(["send", "wait", "forget", "dial", "restart", "watch"], [60, 15, 2, 5, 2, 2])[0]
        self.happened[act] += 1
        if act == "send":
            self.send(here, there)
        elif act == "forget":
            here.forget(there)
        elif act == "dial":
            here.dial(there, "")
        elif act == "watch":
            over(here).watch({there})
        elif act == "restart":
            here.abort()
            await self.start(name)
        else:
            await asyncio.sleep(self.rng.choice([0.01, 0.1, 1.0]))


async def chaos(seed: int) -> Counter[str]:
    faults: list[dict] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, fault: faults.append(fault))
    world = Chaos(seed)
    for name in "ab":
        await world.start(name)
    for _ in range(150):
        await world.act()
    world.post.lossy = False
    await asyncio.sleep(30)
    for task in world.sending:
        task.cancel()
    ended = await asyncio.gather(*world.sending, return_exceptions=True)
    assert all(end is None or isinstance(end, PeerLost | asyncio.CancelledError) for end in ended)
    a, b = world.peers["a"], world.peers["b"]
    for here, there in ((a, b), (b, a)):
        here.dial(there.id, "")
        before = world.post.frames
        assert await ask(here, there, 1) == 2
        assert world.post.frames - before < 60
    over(a).watch(set())
    over(b).watch(set())
    await asyncio.sleep(10)
    before = world.post.frames
    await asyncio.sleep(60)
    assert world.post.frames == before, "an idle link is not silent"
    for endpoint in (a, b):
        endpoint.abort()
    assert faults == []
    return world.happened


def test_messages_in_any_chaos_come_once_in_order_and_to_the_right_incarnation() -> None:
    happened = sum((run_virtual(chaos(seed)) for seed in range(60)), Counter())
    assert min(happened[what] for what in ("arrived", "lost", "forget", "restart", "watch")) > 60, happened
