"""Transfer of a snapshot: a peer fetches the snapshot of another peer, the donor, in parts, each verified by its hash.

The donor answers with a manifest (version, size, the BLAKE2b hash of every part), and then with parts, in any order,
each in pieces of a size that suits its link. The fetching peer does not ask for parts that it already has, by their
hashes.

Cost: n bytes plus 32 per part; 2 round trips when the window covers the parts, and on a slow link one for each piece.
On failure: PeerLost when the donor is lost; PeerMisbehaved, which condemns the donor, on a part with a wrong hash.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from ..channel import Channel, Envelope
from ..link.link import PeerLost
from ..offload import off_loop
from ..testpoints import buggify, witness
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, PeerMisbehaved, message
from .readings import Readings
from .snapshot import Snapshot, pack

PART_BYTES = 64 * 1024
"""The size of a part in bytes. It is larger for large snapshots, so that the hashes of all parts fit into a message."""
HASH_BYTES = 32
"""The bytes of a part's hash, by blake2b."""
_PARTS_MAX = (1 << 20) // HASH_BYTES
_PIECE_BYTES_MIN = 2 * 1024
_UNDER_WAY = 8
_ANSWERS_MAX = 64 * _UNDER_WAY
_KEPT = 2


@message("snapshot")
@dataclass(frozen=True, slots=True)
class AskManifest:
    """Asks for the manifest of `version`, or of the donor's newest version if it no longer holds that one."""

    ask: int
    version: int


@message("snapshot", lane=Lane.DATA, payload_max=_PARTS_MAX * HASH_BYTES)
@dataclass(frozen=True, slots=True)
class Manifest:
    """The answer to AskManifest: the snapshot of `version` has `size` bytes, in parts of `part_bytes`. Payload: the
    hashes of all parts, concatenated."""

    ask: int
    version: int
    size: int
    part_bytes: int


@message("snapshot")
@dataclass(frozen=True, slots=True)
class AskPart:
    """Asks for the part with that `index` of the snapshot of `version`, from the part's byte `start` on."""

    ask: int
    version: int
    index: int
    start: int


@message("snapshot", lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Part:
    """The answer to AskPart. Payload: bytes of the part from `start` on, as many as suit the link. Empty when the donor
    no longer holds that version, or the part has no byte `start`."""

    ask: int
    version: int
    index: int
    start: int


@message("snapshot")
@dataclass(frozen=True, slots=True)
class Busy:
    """The answer to AskManifest or AskPart of a donor that is already answering as many questions as it can. The asking
    peer turns to another donor."""

    ask: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """Event for a simulation's checkers: all of one part of the snapshot of `version` has arrived, and is kept. `data`:
    its bytes; `digest`: its hash, by which the donor has announced it."""

    version: int
    part: int
    data: bytes
    digest: bytes


@dataclass(frozen=True, slots=True)
class Served:
    """Event for a simulation's checkers: a donor was asked for the version `asked`, whose bytes it keeps, and answers
    with those of the version `given`. The two must be equal."""

    asked: int
    given: int


class CatchUpFailed(Exception):
    """No donor could give its state. The message tells what happened with each donor."""


@dataclass(frozen=True, slots=True)
class _Offer:
    version: int
    blob: bytes
    part_bytes: int
    hashes: bytes


def _hash(part: bytes | memoryview) -> bytes:
    return hashlib.blake2b(part, digest_size=HASH_BYTES).digest()


def part_bytes_of(size: int) -> int:
    """The bytes of each part of a snapshot of `size` bytes; the last part may have fewer."""
    part_bytes = PART_BYTES
    while size > part_bytes * _PARTS_MAX:
        part_bytes *= 2
    return part_bytes


def _offer(snapshot: Snapshot) -> _Offer:
    blob = pack(snapshot)
    part_bytes = part_bytes_of(len(blob))
    view = memoryview(blob)
    hashes = b"".join(_hash(view[i : i + part_bytes]) for i in range(0, len(blob), part_bytes))
    return _Offer(snapshot.version, blob, part_bytes, hashes)


class Donor:
    """Answers the peers that fetch this peer's snapshots. It keeps the bytes of the two versions that were asked for
    last, so that a slow reader can finish the version that it began. `newest` returns the newest snapshot. A peer that
    asks too often is at fault (`Readings`)."""

    def __init__(self, channel: Channel, newest: Callable[[], Snapshot]) -> None:
        self._channel, self._endpoint, self._newest = channel, channel.endpoint, newest
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
        """The cost of the answer as a fraction of a snapshot: half for the hashes, half for all pieces together."""
        if isinstance(question, AskManifest) or (kept := self._offers.get(question.version)) is None:
            return 0.5
        return 0.5 * min(1.0, min(kept.part_bytes, self._endpoint.chunk_bytes(peer)) / max(1, len(kept.blob)))

    async def _reply(self, envelope: Envelope) -> None:
        to, question = envelope.sender, envelope.message
        try:
            if isinstance(question, AskManifest):
                offer = self._kept(question.version) or await self._make_offer()
                manifest = Manifest(question.ask, offer.version, len(offer.blob), offer.part_bytes)
                await self._channel.send(to, manifest, offer.hashes)
                return
            piece: bytes | memoryview = b""
            if (kept := self._kept(question.version)) is not None:
                begin, most = question.index * kept.part_bytes, max(_PIECE_BYTES_MIN, self._endpoint.chunk_bytes(to))
                part = memoryview(kept.blob)[begin : begin + kept.part_bytes]
                piece = part[question.start : question.start + most]
            await self._channel.send(to, Part(question.ask, question.version, question.index, question.start), piece)
        except PeerLost:
            pass  # the asking peer is gone
        except Exception as error:  # such as too little memory for the bytes: another donor may have enough
            self._channel.refuse(envelope, f"{type(error).__name__}: {error}", error)

    def _kept(self, version: int) -> _Offer | None:
        offer = self._offers.pop(version, None)
        if offer is not None:
            witness(Served(version, offer.version))
            self._offers[version] = offer  # moved to the end: it was asked for last
        return offer

    async def _make_offer(self) -> _Offer:
        snapshot = self._newest()
        offer = self._kept(snapshot.version)
        if offer is None:
            offer = await off_loop(snapshot.nbytes, lambda: _offer(snapshot))
            self._offers[offer.version] = offer
            for old in list(self._offers)[:-_KEPT]:
                del self._offers[old]
        return offer


async def fetch(
    channel: Channel,
    donor: PeerId,
    *,
    version: int,
    check: Callable[[int], None],
    size_max: int,
    kept: dict[bytes, bytes],
) -> bytes | None:
    """The donor's snapshot as bytes (`snapshot.unpack`), preferably of `version`; None when the donor has dropped that
    version meanwhile. `check` is called with the number of the version that the donor offers, and raises PeerMisbehaved
    when that version is of no use. `size_max`: the most bytes that are accepted. `kept`: parts by hash, which are not
    fetched again; afterwards it holds the parts of this snapshot, or those that have arrived so far if this is
    cancelled or fails. Raises PeerLost, also when the donor is busy with others, and PeerMisbehaved for an offer or a
    part that cannot be right."""
    answer = await channel.ask(donor, lambda ask: AskManifest(ask, version), answers=(Manifest, Busy))
    hashes, manifest = bytes(answer.payload), answer.message
    answer.done()
    if isinstance(manifest, Busy):
        raise _is_busy(donor)
    check(manifest.version)
    _check_sizes(manifest, hashes, size_max)
    wanted = [hashes[i : i + HASH_BYTES] for i in range(0, len(hashes), HASH_BYTES)]
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
    """Fetch parts by indices from `missing` until none is left; False when the donor no longer has the version."""
    for index in missing:
        size = min(manifest.part_bytes, manifest.size - index * manifest.part_bytes)
        data = await _fetch_part(channel, donor, manifest.version, index, size)
        if data is None:
            return False
        if _hash(data) != wanted[index]:
            raise PeerMisbehaved(f"part {index} of version {manifest.version} does not match its hash")
        kept[wanted[index]] = data
        witness(Fetched(manifest.version, index, data, wanted[index]))
    return True


async def _fetch_part(channel: Channel, donor: PeerId, version: int, index: int, size: int) -> bytes | None:
    """A part of `size` bytes; None when the donor no longer has the version."""
    pieces, have = list[bytes](), 0
    while have < size:
        question = partial(AskPart, version=version, index=index, start=have)
        answer = await channel.ask(donor, question, answers=(Part, Busy))
        piece = bytes(answer.payload)
        answer.done()
        if isinstance(answer.message, Busy):
            raise _is_busy(donor)
        if not piece:
            return None
        pieces.append(piece)
        have += len(piece)
        if have > size:
            raise PeerMisbehaved(f"part {index} of version {version} has more than the {size} bytes that it is to have")
    return b"".join(pieces)


def _is_busy(donor: PeerId) -> PeerLost:
    return PeerLost(donor, "it is answering too many others")


def _check_sizes(manifest: Manifest, hashes: bytes, size_max: int) -> None:
    if manifest.size > size_max or manifest.part_bytes != part_bytes_of(manifest.size):
        raise PeerMisbehaved(f"offers a snapshot of {manifest.size} bytes, at most {size_max} make sense")
    if len(hashes) != -(-manifest.size // manifest.part_bytes) * HASH_BYTES:
        raise PeerMisbehaved("its manifest has another number of hashes than parts")
