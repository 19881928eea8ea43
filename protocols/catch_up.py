"""Catch-up: a late or returning peer fetches the last committed state in parts, each verified by its hash.

The donor answers a manifest (round, size, a BLAKE2b of every part) and then parts, in any order, each in pieces of the
size that suits its link. When a donor dies in the middle, the next one is asked for its manifest and the parts whose
hashes are the same are kept.
Cost: n bytes plus 32 per part; 2 round trips when the window covers the parts, and on a slow link one for each piece.
On loss of all donors: CatchUpFailed, and the caller's state is untouched. A part with a wrong hash condemns its donor.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..aggregation.vector import Layout
from .channel import Channel, Envelope
from .delivery.link import PeerLost
from .members.view import Version
from .off_loop import off_loop
from .readings import Readings
from .rounds import Fetched
from .state import State, bytes_max, pack, state_fingerprint, unpack
from .transport import PeerId
from .wire import PAYLOAD_BYTES_MAX, Lane, PeerMisbehaved, message
from .witness import buggify, sometimes, witness

PART_BYTES = 64 * 1024
"""Or more, so that the hashes of all parts fit into a message."""
_HASH_BYTES = 32
_PARTS_MAX = (1 << 20) // _HASH_BYTES
_PIECE_BYTES_MIN = 2 * 1024
_UNDER_WAY = 8
_ANSWERS_MAX = 64 * _UNDER_WAY
_KEPT = 2
_MANIFESTS_MAX = 4
"""How often a donor may move on to a later round while it is read, before the next donor is tried."""


class CatchUpFailed(Exception):
    """No donor could give a state. Says what happened with each."""


@message("snapshot")
@dataclass(frozen=True, slots=True)
class AskManifest:
    """Asks for the state of `round`, or of the donor's last round when it has that no more."""

    ask: int
    round: int


@message("snapshot", lane=Lane.DATA, payload_max=_PARTS_MAX * _HASH_BYTES)
@dataclass(frozen=True, slots=True)
class Manifest:
    """Payload: the hashes of all parts, one after the other."""

    ask: int
    round: int
    size: int
    part_bytes: int


@message("snapshot")
@dataclass(frozen=True, slots=True)
class AskPart:
    """Asks for the part of that index, from the byte `start` of it on."""

    ask: int
    round: int
    index: int
    start: int


@message("snapshot", lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Part:
    """Payload: the piece of the part from `start` on, or the rest. Empty when the donor has that round no more."""

    ask: int
    round: int
    index: int
    start: int


@message("snapshot")
@dataclass(frozen=True, slots=True)
class Busy:
    """The donor answers as many as it can: ask another."""

    ask: int


@dataclass(frozen=True, slots=True)
class _Offer:
    round: int
    blob: bytes
    part_bytes: int
    hashes: bytes


def _hash(part: bytes | memoryview) -> bytes:
    return hashlib.blake2b(part, digest_size=_HASH_BYTES).digest()


def part_bytes_of(size: int) -> int:
    """How large the parts of a state of so many bytes are; the last has the rest."""
    part_bytes = PART_BYTES
    while size > part_bytes * _PARTS_MAX:
        part_bytes *= 2
    return part_bytes


def _offer(state: State) -> _Offer:
    blob = pack(state)
    part_bytes = part_bytes_of(len(blob))
    view = memoryview(blob)
    hashes = b"".join(_hash(view[i : i + part_bytes]) for i in range(0, len(blob), part_bytes))
    return _Offer(state.round, blob, part_bytes, hashes)


class Donor:
    """Answers those who catch up. Keeps the bytes of the two rounds that were asked for last, so that a slow reader can
    finish the one it began."""

    def __init__(self, channel: Channel, state: Callable[[], State]) -> None:
        self._channel, self._endpoint, self._state = channel, channel.endpoint, state
        self._offers: dict[int, _Offer] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._readings = Readings(self._endpoint.interval_s)
        channel.on(AskManifest, self._answer)
        channel.on(AskPart, self._answer)

    def _answer(self, envelope: Envelope) -> None:
        self._readings.read(envelope.sender, self._share(envelope.sender, envelope.message))
        if len(self._answers) >= _ANSWERS_MAX or buggify("a donor is busy"):
            self._channel.post(envelope.sender, Busy(envelope.message.ask))
            return
        task = asyncio.create_task(self._reply(envelope), name="donor")
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def _share(self, peer: PeerId, question: AskManifest | AskPart) -> float:
        """Of a state, that it takes to answer: half for the hashes, half for all pieces of it."""
        if isinstance(question, AskManifest) or (kept := self._offers.get(question.round)) is None:
            return 0.5
        return 0.5 * min(1.0, min(kept.part_bytes, self._endpoint.chunk_bytes(peer)) / max(1, len(kept.blob)))

    async def _reply(self, envelope: Envelope) -> None:
        to, question = envelope.sender, envelope.message
        try:
            if isinstance(question, AskManifest):
                offer = self._kept(question.round) or await self._make_offer()
                manifest = Manifest(question.ask, offer.round, len(offer.blob), offer.part_bytes)
                await self._channel.send(to, manifest, offer.hashes)
                return
            piece: bytes | memoryview = b""
            if (kept := self._kept(question.round)) is not None:
                begin, most = question.index * kept.part_bytes, max(_PIECE_BYTES_MIN, self._endpoint.chunk_bytes(to))
                part = memoryview(kept.blob)[begin : begin + kept.part_bytes]
                piece = part[question.start : question.start + most]
            await self._channel.send(to, Part(question.ask, question.round, question.index, question.start), piece)
        except PeerLost:
            pass  # nobody is left to answer
        except Exception as error:  # such as too little memory for the bytes of the state: others may have it
            self._channel.refuse(envelope, f"{type(error).__name__}: {error}", error)

    def _kept(self, round: int) -> _Offer | None:
        offer = self._offers.pop(round, None)
        if offer is not None:
            self._offers[round] = offer  # the last that was asked for
        return offer

    async def _make_offer(self) -> _Offer:
        state = self._state()
        offer = self._kept(state.round)
        if offer is None:
            offer = await off_loop(state.vector.nbytes, lambda: _offer(state))
            self._offers[offer.round] = offer
            for old in list(self._offers)[:-_KEPT]:
                del self._offers[old]
        return offer


async def fetch_state(
    channel: Channel,
    donors: Sequence[PeerId],
    layout: Layout,
    *,
    outer: int,
    wanted: Version,
    exact: bool = False,
    kept: dict[bytes, bytes] | None = None,
) -> State:
    """The state of one of `donors`, tried in turn, preferably of the `wanted` round. `exact`: that version and no
    other; a fingerprint of 0: nobody has told it. `outer`: how many tensors the outer step has. `kept`: parts by their
    hashes, from one try to the next. Raises CatchUpFailed."""
    kept, failures = {} if kept is None else kept, list[str]()
    for donor in donors:
        try:
            for _ in range(_MANIFESTS_MAX):
                blob = await _fetch_from(channel, donor, layout, outer, wanted.round, kept)
                if blob is not None:
                    return await off_loop(len(blob), partial(_state, blob, layout, outer, wanted, exact))
            failures.append(f"{donor:.12}: it went on to a later round {_MANIFESTS_MAX} times before one had come over")
        except (PeerLost, PeerMisbehaved) as error:
            sometimes("a donor was lost")
            failures.append(f"{donor:.12}: {error}")
    raise CatchUpFailed("no donor gave a state: " + ("; ".join(failures) or "there is no other peer"))


def _state(blob: bytes, layout: Layout, outer: int, wanted: Version, exact: bool) -> State:
    """Raises PeerMisbehaved when the bytes are no state of this model, or not what the members agreed on."""
    state = unpack(blob, layout, outer)
    if exact and state.round != wanted.round:
        raise PeerMisbehaved(f"it has round {state.round}, round {wanted.round} is wanted")
    told = wanted.fingerprint != 0 and state.round == wanted.round
    if told and state_fingerprint(state) != wanted.fingerprint:
        raise PeerMisbehaved(f"its state of round {state.round} is not what the members agreed on")
    return state


async def _fetch_from(
    channel: Channel, donor: PeerId, layout: Layout, outer: int, round: int, kept: dict[bytes, bytes]
) -> bytes | None:
    """The donor's state as bytes, with the parts in `kept` not fetched again; None when it has gone on meanwhile."""
    answer = await channel.ask(donor, lambda ask: AskManifest(ask, round))
    hashes, manifest = bytes(answer.payload), answer.message
    answer.done()
    if not isinstance(manifest, Manifest):
        raise _no_answer(donor, manifest)
    _check(manifest, hashes, layout, outer)
    wanted = [hashes[i : i + _HASH_BYTES] for i in range(0, len(hashes), _HASH_BYTES)]
    for stale in kept.keys() - set(wanted):
        del kept[stale]
    missing = iter([index for index, digest in enumerate(wanted) if digest not in kept])
    workers = [
        asyncio.create_task(_fetch_parts(channel, donor, manifest, wanted, missing, kept)) for _ in range(_UNDER_WAY)
    ]
    try:
        complete = await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return await off_loop(manifest.size, lambda: b"".join(kept[part] for part in wanted)) if all(complete) else None


async def _fetch_parts(
    channel: Channel,
    donor: PeerId,
    manifest: Manifest,
    wanted: Sequence[bytes],
    missing: Iterator[int],
    kept: dict[bytes, bytes],
) -> bool:
    """Take indices from `missing` until there are none; False when the donor has the round no more."""
    for index in missing:
        size = min(manifest.part_bytes, manifest.size - index * manifest.part_bytes)
        data = await _fetch_part(channel, donor, manifest.round, index, size)
        if data is None:
            return False
        if _hash(data) != wanted[index]:
            raise PeerMisbehaved(f"part {index} of round {manifest.round} does not match its hash")
        kept[wanted[index]] = data
        witness(Fetched(manifest.round, index))
    return True


async def _fetch_part(channel: Channel, donor: PeerId, round: int, index: int, size: int) -> bytes | None:
    """A part of `size` bytes; None when the donor has the round no more."""
    pieces, have = list[bytes](), 0
    while have < size:
        answer = await channel.ask(donor, lambda ask, start=have: AskPart(ask, round, index, start))  # type: ignore[misc]
        piece = bytes(answer.payload)
        answer.done()
        if not isinstance(answer.message, Part):
            raise _no_answer(donor, answer.message)
        if not piece:
            return None
        pieces.append(piece)
        have += len(piece)
        if have > size:
            raise PeerMisbehaved(f"part {index} of round {round} has more than the {size} bytes that it is to have")
    return b"".join(pieces)


def _no_answer(donor: PeerId, message: object) -> Exception:
    if isinstance(message, Busy):
        return PeerLost(donor, "it is answering too many others")
    return PeerMisbehaved(f"answered a question for its state with {type(message).__name__}")


def _check(manifest: Manifest, hashes: bytes, layout: Layout, outer: int) -> None:
    if manifest.size > bytes_max(layout, outer) or manifest.part_bytes != part_bytes_of(manifest.size):
        raise PeerMisbehaved(f"offers a state of {manifest.size} bytes, this model has {layout.nbytes}")
    if len(hashes) != -(-manifest.size // manifest.part_bytes) * _HASH_BYTES:
        raise PeerMisbehaved("its manifest has another number of hashes than parts")
