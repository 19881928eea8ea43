"""What a hostile process does to a run (`attacker`): each attack is done again and again, for as many turns as it is
given. `BY_KEYS` are those of keys that an invite has let in, `AS_MEMBER` those of a member."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import secrets
from collections.abc import Awaitable, Callable, Iterable
from functools import partial

import zmq
from attacker import Attacker, Turns

from samovar.peers.peer import Peer
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.link import PeerLost
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members.acceptor import _AHEAD_MAX
from samovar.protocols.members.messages import MEMBERS, Propose
from samovar.protocols.shared_memory.arena import Attached, Offer, Use
from samovar.protocols.transfer.chunks import Chunk
from samovar.protocols.transfer.snapshot_transfer import AskManifest, AskPart, Busy, Manifest, Part
from samovar.protocols.transport import PeerId
from samovar.protocols.wire.frames import encode
from samovar.protocols.zeromq.transport import KeyPair
from samovar.sims.world.hostile import Speech, say

MIB, INT_MAX = 1 << 20, 2**63 - 1
FAR = 2**30
"""How far ahead a view may be of which one hears, and more than a run has."""
SAME_KEY = 10
"""How many turns until another key comes, where the same is soon cut off."""


async def fill(endpoint: Endpoint, to: PeerId, messages: Iterable[object], payload: bytes) -> None:
    """As many as there is credit for."""
    with contextlib.suppress(PeerLost, TimeoutError):
        for message in messages:
            async with asyncio.timeout(0.3):
                await Channel(endpoint, LOCAL_SGD).send(to, message, payload)


async def fill_all(endpoint: Endpoint, ids: Iterable[PeerId], generation: int, round: int) -> None:
    """Chunks of 64 rounds from `round` on, of 1 MiB each."""
    await asyncio.gather(
        *(
            fill(endpoint, to, (Chunk(generation, round + n, 0, 0, 0, MIB // 4) for n in range(64)), bytes(MIB))
            for to in ids
        )
    )


async def chunks(attacker: Attacker, turns: Turns) -> None:
    """Of views that never come, up to the credit, and again by a new connection, which has fresh credit."""
    own: KeyPair | None = None
    for turn in turns:
        endpoint, own = await attacker.enter(own if turn % SAME_KEY else None)
        await fill_all(endpoint, attacker.ids, INT_MAX if turn % 2 else FAR, 1)
        endpoint.abort()


async def extremes(attacker: Attacker, turns: Turns) -> None:
    """Well-formed messages of every kind, of extreme values, or nearly what honest peers say."""
    chance = random.Random(1)
    speech = Speech(chance, attacker.ids)
    for _ in turns:
        endpoint, _ = await attacker.enter()
        attacker.hears = partial(overhear, speech)
        with contextlib.suppress(PeerLost):
            await attacker.join(endpoint, "extreme", ready=False)
        for number in range(600):
            say(endpoint, chance.choice(attacker.ids), *speech.next())
            if number % 50 == 0:
                await asyncio.sleep(0.01)
        endpoint.abort()


def overhear(speech: Speech, envelope: Envelope) -> None:
    speech.hear(encode(envelope.message, 0, incarnation=1, towards=2, seq=3, channel=envelope.channel), 0)


async def rejoins(attacker: Attacker, turns: Turns) -> None:
    """One key joins under another name, and in another life, once a second, and never takes part."""
    endpoint, _ = await attacker.enter()
    for turn in turns:
        with contextlib.suppress(PeerLost):
            await attacker.join(endpoint, f"villain {turn}", life=secrets.randbits(62))
        await asyncio.sleep(1.0)
    endpoint.abort()


async def joiners(attacker: Attacker, turns: Turns) -> None:
    """Thirty keys join at once, and say nothing more, for a second a turn."""
    async with contextlib.AsyncExitStack() as stack:

        async def come(number: int) -> None:
            endpoint, _ = await attacker.enter()
            stack.callback(endpoint.abort)
            await attacker.join(endpoint, f"silent {number}", life=secrets.randbits(62))

        await asyncio.gather(*(come(number) for number in range(30)))
        for _ in turns:
            await asyncio.sleep(1.0)


async def garbage(attacker: Attacker, turns: Turns) -> None:
    """Frames that are no messages, as fast as ZeroMQ takes them."""
    chance = random.Random(1)
    frames = [[b"\xc1"], [chance.randbytes(60), b""], [b"", b""], [b"\x96" * 60, chance.randbytes(200)], [b"x"] * 5]
    with zmq.Context() as context, contextlib.ExitStack() as stack:
        sockets = list[zmq.Socket[bytes]]()
        for turn in turns:
            if turn % SAME_KEY == 0:
                stack.close()
                endpoint, own = await attacker.enter()
                endpoint.abort()
                sockets = [
                    stack.enter_context(_raw(context, own, victim.door().contact, victim.address))
                    for victim in attacker.victims
                ]
            await asyncio.to_thread(_blast, sockets, frames)
        stack.close()


def _raw(context: zmq.Context[zmq.Socket[bytes]], own: KeyPair, to: PeerId, address: str) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.linger, socket.sndtimeo = 0, 200
    socket.curve_publickey, socket.curve_secretkey = bytes.fromhex(own.public), bytes.fromhex(own.secret)
    socket.curve_serverkey = bytes.fromhex(to)
    socket.connect(address)
    return socket


def _blast(sockets: list[zmq.Socket[bytes]], frames: list[list[bytes]]) -> None:
    for number in range(2_000):
        for socket in sockets:
            with contextlib.suppress(zmq.Again):
                socket.send_multipart(frames[number % len(frames)])


async def state(attacker: Attacker, turns: Turns) -> None:
    """Asks for the model over and over, of all at once."""
    endpoint, _ = await attacker.enter()
    channel = Channel(endpoint, LOCAL_SGD)

    async def fetch(donor: PeerId) -> None:
        with contextlib.suppress(PeerLost):
            question = partial(AskManifest, version=INT_MAX)
            answer = await channel.ask(donor, question, answers=(Manifest, Busy), within_s=5.0)
            answer.done()
            if isinstance(answer.message, Manifest):
                version = answer.message.version
                for index in range(8):
                    of_part = partial(AskPart, version=version, index=index % 2, start=0)
                    part = await channel.ask(donor, of_part, answers=(Part, Busy), within_s=5.0)
                    part.done()

    for _ in turns:
        await asyncio.gather(*(fetch(donor) for donor in attacker.ids for _ in range(32)))
    endpoint.abort()


async def member_chunks(peer: Peer, turns: Turns) -> None:
    """Of the present view and rounds to come, up to the credit; and of rounds that are over, without end."""
    for turn in turns:
        view, round = peer.membership.view, peer.conversation.state.round
        others = [one for one in view.ids if one != peer.endpoint.id]
        await fill_all(peer.endpoint, others, view.generation, round + 1_000 if turn % 2 else 1)


async def member_ballots(peer: Peer, turns: Turns) -> None:
    """Proposes views under ballots beyond sense."""
    for _ in turns:
        for number in range(20):
            to_others(peer, MEMBERS, Propose(peer.membership.view.generation, INT_MAX - number))
        await asyncio.sleep(0.5)


async def member_proposals(peer: Peer, turns: Turns) -> None:
    """Proposes views under the highest ballot that makes sense, twice a second, and does no more about it."""
    for _ in turns:
        to_others(peer, MEMBERS, Propose(peer.membership.view.generation, _AHEAD_MAX))
        await asyncio.sleep(0.5)


async def member_deals(peer: Peer, turns: Turns) -> None:
    """Of shared memory of ever new sizes, of this view and of those to come; and of one that never comes."""
    sizes = itertools.count(1)
    for _ in turns:
        for size in itertools.islice(sizes, 200):
            generation = peer.membership.view.generation
            for which in (generation, generation + size):
                to_others(peer, LOCAL_SGD, Use(which, size, True))
                to_others(peer, LOCAL_SGD, Offer(which, size, 1, 0, bytes(16)))
                to_others(peer, LOCAL_SGD, Attached(which, size, True))
            await asyncio.sleep(0)
        to_others(peer, LOCAL_SGD, Use(INT_MAX, 1, True))
        await peer.endpoint.drain()


def to_others(peer: Peer, channel: str, message: object) -> None:
    for one in peer.membership.view.ids:
        if one != peer.endpoint.id:
            peer.endpoint.post(channel, one, message)


BY_KEYS: dict[str, Callable[[Attacker, Turns], Awaitable[None]]] = {
    "chunks": chunks,
    "extremes": extremes,
    "rejoins": rejoins,
    "joiners": joiners,
    "garbage": garbage,
    "state": state,
}
AS_MEMBER: dict[str, Callable[[Peer, Turns], Awaitable[None]]] = {
    "chunks": member_chunks,
    "ballots": member_ballots,
    "proposals": member_proposals,
    "deals": member_deals,
}
