"""A network for tests whose frames take as long as they like, and endpoints in it."""

import asyncio
import random

from samovar.protocols.endpoint import Endpoint
from samovar.protocols.transport import Arrivals, PeerId
from samovar.protocols.wire.frames import Buffer


class Post:
    """A network whose frames take as long as they like, some for ever, and come to whoever has the name by then."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lossy, self.frames = rng, True, 0
        self.open: dict[PeerId, Arrivals] = {}

    def send(self, sender: PeerId, to: PeerId, header: bytes, payload: Buffer) -> None:
        self.frames += 1
        copies = self.rng.choice([0, 1, 1, 1, 2]) if self.lossy else 1
        for _ in range(copies):
            delay_s = self.rng.choice([0.01, 0.02, 0.2, 5.0]) if self.lossy else 0.01
            asyncio.get_running_loop().call_later(delay_s, self.deliver, sender, to, header, bytes(payload))

    def deliver(self, sender: PeerId, to: PeerId, header: bytes, payload: bytes) -> None:
        if to in self.open:
            self.open[to].frames(sender, header, payload, len(header) + len(payload))


class PostTransport:
    machine = ""
    pipes = None
    budget = None

    def __init__(self, post: Post, id: PeerId) -> None:
        self._post, self.id, self.address = post, id, f"post://{id}"

    def open(self, arrivals: Arrivals) -> None:
        self._post.open[self.id] = arrivals

    def post(self, peer: PeerId, header: bytes, payload: Buffer) -> int:
        self._post.send(self.id, peer, header, payload)
        return len(header) + len(payload)

    def reaches(self, peer: PeerId) -> bool:
        return True

    async def self_test(self) -> None: ...

    def dial(self, peer: PeerId, address: str) -> None: ...

    def admit(self, peer: PeerId, *, shared: bool = False) -> None: ...

    def dismiss(self, peer: PeerId) -> None: ...

    def hang_up(self, peer: PeerId, *, call: bool = False) -> None: ...

    def trouble(self, peer: PeerId) -> str | None: ...

    def whence(self, peer: PeerId) -> str:
        return f"post://{peer}"

    def close(self) -> None:
        self._post.open.pop(self.id, None)


async def opened(post: Post, name: str, seed: int) -> Endpoint:
    endpoint = Endpoint(PostTransport(post, name), patience_s=4, rng=random.Random(seed))
    await endpoint.open()
    return endpoint
