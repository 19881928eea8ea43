"""Probing: a peer asks another one whether it can reach the asker's addresses, and measures the round-trip time and the
bandwidth of the link to it.

The answering peer opens connections on behalf of the asker, perhaps inside a network that the asker cannot reach
itself. So it tries the host that the question comes from without limit, but other hosts, such as a name of the same
host, only 32 times an hour for all askers together.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from ..addresses import Elsewhere, split_address
from ..channel import Channel, Envelope
from ..endpoint import Endpoint
from ..members.view import Member
from ..transport import PeerId
from ..wire.frames import PAYLOAD_BYTES_MAX, Lane, message

_REACH = "reach"
"""The name of the channel."""
_ADDRESSES_MAX = _ASKERS_MAX = 16
_ELSEWHERE_MAX, _ELSEWHERE_S = 32, 3600.0
_NOT_TRIED = f"not tried: it is another host than you call from, of which {_ELSEWHERE_MAX} are tried in an hour"
_CONNECT_S = 3.0
_LOAD_BYTES, _UNDER_WAY, _SMALL = 8 << 20, 64, 640


@message("reach")
@dataclass(frozen=True, slots=True)
class AskReach:
    """Asks a peer to open a TCP connection to each of these addresses, at most 16."""

    ask: int
    addresses: tuple[str, ...]


@message("reach")
@dataclass(frozen=True, slots=True)
class Reached:
    """The answer to AskReach. `problems`: for each address in order, "" if it was reached, else the reason why not.
    `members`: the members of the run that the answering peer knows."""

    ask: int
    problems: tuple[str, ...]
    members: tuple[Member, ...]


@message("reach", lane=Lane.DATA, payload_max=PAYLOAD_BYTES_MAX)
@dataclass(frozen=True, slots=True)
class Load:
    """Sent to measure the link; answered with Loaded. Payload: bytes without a meaning."""

    ask: int


@message("reach")
@dataclass(frozen=True, slots=True)
class Loaded:
    """The answer to Load: the payload has arrived."""

    ask: int


class Prober:
    """One peer's answers to the questions AskReach and Load of other peers, from its construction on. `members` returns
    the members of the run, for the answer to AskReach."""

    def __init__(self, endpoint: Endpoint, members: Callable[[], Sequence[Member]]) -> None:
        self._channel, self._members = Channel(endpoint, _REACH), members
        self._trying: set[asyncio.Task[None]] = set()
        self._elsewhere = Elsewhere(_ELSEWHERE_MAX, _ELSEWHERE_S)
        self._channel.on(AskReach, self._on_reach)
        self._channel.on(Load, self._on_load)

    def _on_reach(self, envelope: Envelope) -> None:
        if len(envelope.message.addresses) > _ADDRESSES_MAX:
            self._channel.refuse(envelope, f"it tries {_ADDRESSES_MAX} addresses at most")
        elif len(self._trying) >= _ASKERS_MAX:
            self._channel.refuse(envelope, f"it is busy with {_ASKERS_MAX} others who ask the same; ask again")
        else:
            task = asyncio.create_task(self._reach(envelope.sender, envelope.message))
            self._trying.add(task)
            task.add_done_callback(self._trying.discard)

    async def _reach(self, asker: PeerId, question: AskReach) -> None:
        problems = await asyncio.gather(*(self._try(asker, address) for address in question.addresses))
        self._channel.post(asker, Reached(question.ask, tuple(problems), tuple(self._members())))

    async def _try(self, asker: PeerId, address: str) -> str:
        if not self._elsewhere.allows(self._channel.endpoint.whence(asker), address, _ELSEWHERE_MAX):
            return _NOT_TRIED
        return await _try_to_connect(address)

    def _on_load(self, envelope: Envelope) -> None:
        envelope.done()
        self._channel.post(envelope.sender, Loaded(envelope.message.ask))


async def _try_to_connect(address: str) -> str:
    try:
        host, port = split_address(address)
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), port)
        writer.close()
    except TimeoutError:
        return f"no answer within {_CONNECT_S:g} s: a firewall, or another network"
    except (OSError, ValueError) as error:
        return str(error)[:200]
    return ""


async def ask_reach(endpoint: Endpoint, peer: PeerId, addresses: Sequence[str]) -> Reached:
    """Ask `peer` which of the first 16 of `addresses` it can connect to; `Reached.problems` has the answer for each of
    these. Raises PeerLost when it does not answer, or refuses."""
    answer = await Channel(endpoint, _REACH).ask(
        peer,
        lambda ask: AskReach(ask, tuple(addresses[:_ADDRESSES_MAX])),
        answers=(Reached,),
        within_s=2 * endpoint.patience_s + _CONNECT_S,
    )
    reached: Reached = answer.message
    return reached


async def measure(endpoint: Endpoint, peer: PeerId, *, loads: int = 1) -> tuple[float, float]:
    """Measure the link to `peer`. Returns the round-trip time in seconds, and the bandwidth towards `peer` in bytes a
    second. The time is the shortest of ten, because the longer ones have waited for a processor. The bandwidth is the
    median of `loads` transfers (1 or more), each of 8 MiB, or on a slow link of one second. Raises PeerLost when `peer`
    is lost, or does not answer."""
    loop, channel = asyncio.get_running_loop(), Channel(endpoint, _REACH)
    trips = []
    for _ in range(10):
        began = loop.time()
        await _loaded(channel, peer)
        trips.append(loop.time() - began)
    rtt_s = min(trips)
    return rtt_s, median([await _load(endpoint, peer, rtt_s) for _ in range(loads)])


async def _loaded(channel: Channel, peer: PeerId, payload: bytes = b"") -> None:
    """Send `payload`, and return when `peer` has it."""
    await channel.ask(peer, Load, payload, answers=(Loaded,), within_s=2 * channel.endpoint.patience_s)


async def _load(endpoint: Endpoint, peer: PeerId, rtt_s: float) -> float:
    """Bytes a second of one transfer."""
    clock, channel = asyncio.get_running_loop().time, Channel(endpoint, _REACH)
    began, sent, answers = clock(), 0, deque[asyncio.Future[None]]()
    while sent < _LOAD_BYTES and clock() - began < 1.0:
        size = endpoint.chunk_bytes(peer)
        answers.append(asyncio.ensure_future(_loaded(channel, peer, bytes(size))))
        sent += size
        if len(answers) >= _UNDER_WAY:
            await answers.popleft()
    await asyncio.gather(*answers)
    return sent / max(clock() - began - rtt_s, 1e-6)


async def measure_overhead(endpoint: Endpoint, peer: PeerId) -> float:
    """The seconds of sender's and receiver's time that one small message costs, as a mean over many that are in flight
    together. Raises PeerLost as `measure`."""
    loop, channel = asyncio.get_running_loop(), Channel(endpoint, _REACH)
    began = loop.time()
    for _ in range(_SMALL // _UNDER_WAY):
        await asyncio.gather(*(_loaded(channel, peer) for _ in range(_UNDER_WAY)))
    return (loop.time() - began) / _SMALL / 2  # there and back
