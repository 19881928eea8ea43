"""Catch-up: a late or returning peer fetches the last committed state in parts, each verified by its hash.

The donor answers a manifest (round, size, a BLAKE2b of every part) and then parts, in any order. When a donor dies in
the middle, the next one is asked for its manifest and the parts whose hashes are the same are kept.
Cost: n bytes plus 32 per part; 2 round trips when the window covers the parts.
On loss of all donors: CatchUpFailed, and the caller's state is untouched. A part that fails its hash condemns its donor.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..aggregation.vector import Layout
from .endpoint import Endpoint, Envelope
from .link import PeerLost
from .state import State, bytes_max, pack, unpack
from .transport import PeerId
from .wire import Lane, PeerMisbehaved, message

PART_BYTES = 64 * 1024
_HASH_BYTES = 32
_PARTS_MAX = (1 << 20) // _HASH_BYTES
_UNDER_WAY = 8
_KEPT = 2


class CatchUpFailed(Exception):
    """No donor could give a state. Says what happened with each."""


@message()
@dataclass(frozen=True, slots=True)
class AskManifest:
    """Asks for the state of `round`, or of the donor's last round when it has that no more."""

    ask: int
    round: int


@message(lane=Lane.DATA, payload_max=_PARTS_MAX * _HASH_BYTES)
@dataclass(frozen=True, slots=True)
class Manifest:
    """Payload: the hashes of all parts, one after the other."""

    ask: int
    round: int
    size: int
    part_bytes: int


@message()
@dataclass(frozen=True, slots=True)
class AskPart:
    ask: int
    round: int
    index: int


@message(lane=Lane.DATA, payload_max=1 << 20)
@dataclass(frozen=True, slots=True)
class Part:
    """Payload: the part. Empty when the donor has that round no more."""

    ask: int
    round: int
    index: int


@dataclass(frozen=True, slots=True)
class _Offer:
    round: int
    blob: bytes
    part_bytes: int
    hashes: bytes


def _hash(part: bytes | memoryview) -> bytes:
    return hashlib.blake2b(part, digest_size=_HASH_BYTES).digest()


def _offer(state: State) -> _Offer:
    blob = pack(state)
    part_bytes = PART_BYTES
    while len(blob) > part_bytes * _PARTS_MAX:
        part_bytes *= 2
    view = memoryview(blob)
    hashes = b"".join(_hash(view[i : i + part_bytes]) for i in range(0, len(blob), part_bytes))
    return _Offer(state.round, blob, part_bytes, hashes)


class Donor:
    """Answers those who catch up. Keeps at most two rounds' bytes, so a slow reader can finish the one it began."""

    def __init__(self, endpoint: Endpoint, state: Callable[[], State]) -> None:
        self._endpoint, self._state = endpoint, state
        self._offers: dict[int, _Offer] = {}
        self._answers: set[asyncio.Task[None]] = set()
        endpoint.on(AskManifest, self._answer)
        endpoint.on(AskPart, self._answer)

    def _answer(self, envelope: Envelope) -> None:
        if len(self._answers) < 64 * _UNDER_WAY:
            task = asyncio.create_task(self._reply(envelope.sender, envelope.message))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _reply(self, to: PeerId, question: AskManifest | AskPart) -> None:
        try:
            if isinstance(question, AskManifest):
                offer = self._offers.get(question.round) or await self._make_offer()
                manifest = Manifest(question.ask, offer.round, len(offer.blob), offer.part_bytes)
                await self._endpoint.send(to, manifest, offer.hashes)
                return
            part: bytes | memoryview = b""
            if (kept := self._offers.get(question.round)) is not None:
                start = question.index * kept.part_bytes
                part = memoryview(kept.blob)[start : start + kept.part_bytes]
            await self._endpoint.send(to, Part(question.ask, question.round, question.index), part)
        except PeerLost:
            pass  # nobody is left to answer

    async def _make_offer(self) -> _Offer:
        state = self._state()
        if state.round not in self._offers:
            offer = await asyncio.get_running_loop().run_in_executor(None, _offer, state)
            self._offers[offer.round] = offer
            for old in sorted(self._offers)[:-_KEPT]:
                del self._offers[old]
        return self._offers[state.round]


async def fetch_state(endpoint: Endpoint, donors: Sequence[PeerId], layout: Layout, *, round: int) -> State:
    """The state of at least one of `donors`, tried in turn, preferably of `round`. Raises CatchUpFailed."""
    kept: dict[bytes, bytes] = {}
    failures: list[str] = []
    for donor in donors:
        try:
            while (blob := await _fetch_from(endpoint, donor, layout, round, kept)) is None:
                pass  # the donor moved on to a later round while we fetched: its new manifest
            return await asyncio.get_running_loop().run_in_executor(None, unpack, blob, layout)
        except (PeerLost, PeerMisbehaved) as error:
            failures.append(f"{donor:.12}: {error}")
    raise CatchUpFailed("no donor gave a state: " + ("; ".join(failures) or "there is no other peer"))


async def _fetch_from(
    endpoint: Endpoint, donor: PeerId, layout: Layout, round: int, kept: dict[bytes, bytes]
) -> bytes | None:
    answer = await endpoint.ask(donor, lambda ask: AskManifest(ask, round))
    hashes, manifest = bytes(answer.payload), answer.message
    answer.done()
    _check(manifest, hashes, layout)
    wanted = [hashes[i : i + _HASH_BYTES] for i in range(0, len(hashes), _HASH_BYTES)]
    for stale in kept.keys() - set(wanted):
        del kept[stale]
    missing = iter([index for index, digest in enumerate(wanted) if digest not in kept])
    gone = False

    async def fetch_some() -> None:
        nonlocal gone
        for index in missing:
            part = await endpoint.ask(donor, lambda ask, index=index: AskPart(ask, manifest.round, index))  # type: ignore[misc]
            data = bytes(part.payload)
            part.done()
            if not data:
                gone = True
            if gone:
                return
            if not isinstance(part.message, Part) or _hash(data) != wanted[index]:
                raise PeerMisbehaved(f"part {index} of round {manifest.round} does not match its hash")
            kept[wanted[index]] = data

    workers = [asyncio.create_task(fetch_some()) for _ in range(_UNDER_WAY)]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return None if gone else b"".join(kept[digest] for digest in wanted)


def _check(manifest: object, hashes: bytes, layout: Layout) -> None:
    if not isinstance(manifest, Manifest):
        raise PeerMisbehaved("answered something else than a manifest")
    if manifest.size > bytes_max(layout) or not PART_BYTES <= manifest.part_bytes <= 1 << 20:
        raise PeerMisbehaved(f"offers a state of {manifest.size} bytes, this model has {layout.nbytes}")
    if len(hashes) != -(-manifest.size // manifest.part_bytes) * _HASH_BYTES:
        raise PeerMisbehaved("its manifest has another number of hashes than parts")
