"""The door of a run: how a newcomer from outside gets in."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..protocols.addresses import dialable, local_addresses, split_address
from ..protocols.delivery.link import BEGAN_ANEW, PeerLost
from ..protocols.endpoint import Endpoint
from ..protocols.greeting import RunIs, ask_admission, ask_run
from ..protocols.transport import PeerId
from ..protocols.zeromq.transport import KeyPair
from .control import Orders
from .keys import Invite, read_key
from .opening import Opening, open_as, open_endpoint
from .orders import founding_orders
from .runs import keep_settings, make_folder
from .settings import Settings
from .stop import Stop

_ADVICE = {
    "protocol version": "install the same samovar on both sides",
    "refused our key": "the run does not know this key: ask there for its present join line",
    "handshake failed": "somebody else listens there, or only one side is --insecure: ask there for the join line",
    "not known here": "look at how it is spelt, or give an IP address",
    "nobody listens": "is the run still there? Ask for its present join line",
    "": "can this machine reach it? Look for a firewall, or for an address that only its own network knows",
}


class NoEntry(ValueError):
    """A run cannot be entered: where, why, and what to do about it."""

    def __init__(self, address: str, why: str) -> None:
        self.why = why.replace(f" at {address}", "")
        self.advice = next(advice for sign, advice in _ADVICE.items() if sign in why)
        super().__init__(f"cannot join at {address}: {self.why}; {self.advice}")


@dataclass(frozen=True, slots=True)
class Door:
    """Where the contact is and who it is; the key to be known by, and a guest's key to have it admitted with."""

    address: str
    contact: PeerId
    own: KeyPair | None
    guest: KeyPair | None

    @classmethod
    def of(cls, address: str, invite: str | None, peer_key: str | None, settings: Settings) -> Door:
        """Raises ValueError, in one line, when this does not say how to get in."""
        dialable(address)
        if settings.insecure:
            if peer_key is None:
                raise ValueError("an insecure run needs the peer's key too, from the line that `samovar train` printed")
            return cls(address, peer_key, None, None)
        own = read_key(Path(settings.key)) if settings.key else KeyPair.new()
        if invite is not None:
            parsed = Invite.from_text(invite)
            return cls(address, parsed.contact, own, KeyPair.of_secret(parsed.secret))
        if peer_key is None or settings.key is None:
            raise ValueError("say how to get in: --invite TEXT, or --key FILE and --peer-key KEY, or --insecure")
        if len(peer_key) != 64 or not set(peer_key) <= set("0123456789abcdef"):
            raise ValueError(f"{peer_key!r:.80} is no peer's key: that has 64 hexadecimal characters")
        return cls(address, peer_key, own, None)

    async def enter(self, settings: Settings) -> Endpoint:
        """An open endpoint to whose messages the contact listens. Raises NoEntry, OSError."""
        if self.guest is not None and self.own is not None:
            guest = open_endpoint(replace(settings, listen="tcp://127.0.0.1:0"), self.guest.secret)
            await guest.open()
            try:
                await self._be_admitted(guest, self.own.public)
            except PeerLost as lost:
                raise await self.closed(lost) from None
            finally:
                guest.abort()
        endpoint = open_endpoint(settings, self.own.secret if self.own else None)
        await endpoint.open()
        endpoint.dial(self.contact, self.address)
        return endpoint

    async def _be_admitted(self, guest: Endpoint, key: PeerId) -> None:
        """All that come with one invite have one guest's key, so who comes at the same moment puts another out: try
        again, after a pause that differs from the other's."""
        chance = random.Random()
        for pause_s in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 0.0):
            guest.dial(self.contact, self.address)
            try:
                await ask_admission(guest, self.contact, key)
                return
            except PeerLost as lost:
                if lost.why != BEGAN_ANEW or not pause_s:
                    raise
            await asyncio.sleep(chance.uniform(0.0, pause_s))

    async def ask_run(self, endpoint: Endpoint) -> RunIs:
        """What the run inside is. Raises NoEntry."""
        try:
            return await ask_run(endpoint, self.contact)
        except PeerLost as lost:
            raise await self.closed(lost) from None

    async def closed(self, lost: PeerLost) -> NoEntry:
        """What to tell when the contact is `lost`. ZeroMQ says of a host without an address that nobody listens."""
        host, port = split_address(self.address)
        try:
            await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
        except OSError:
            return NoEntry(self.address, f"a host of the name {host} is not known here")
        return NoEntry(self.address, lost.why)


def own_name() -> str:
    """What to call this peer when nobody says."""
    return f"{socket.gethostname()}-{os.getpid()}"


async def open_at(door: Door, settings: Settings, stop: Stop, *, name: str, task: Path) -> Opening:
    """Enter through `door` and take over the settings that all peers of the run share; makes the run's folder here.

    Raises NoEntry and other ValueErrors, OSError.
    """
    settings = settings.of_peer(0)
    endpoint = await door.enter(settings)
    try:
        run = await door.ask_run(endpoint)
        settings = settings.with_agreed(run.settings)
        folder = make_folder(settings.run, task)
        keep_settings(folder, settings)
    except BaseException:
        endpoint.abort()
        raise
    contact: asyncio.Future[PeerId | None] = asyncio.get_running_loop().create_future()
    contact.set_result(door.contact)
    orders = Orders(
        task=str(task),
        settings=settings.to_json(),
        run=run.run,
        folder=str(folder),
        name=name,
        part=0,
        secret=None,
        admit=[],
        guest=None,
        founder=False,
        resume=None,
        threads=settings.threads or cores_for_one(door.address, settings.peers),
    )
    return Opening(endpoint, orders, contact, stop)


def cores_for_one(contact: str, peers: int) -> int:
    """This machine's, but of one that the run's peers are on a share: with more threads than cores all wait."""
    cores, host = os.cpu_count() or 1, split_address(contact)[0]
    shared = host.startswith("127.") or host in (*local_addresses(), "localhost", socket.gethostname(), "[::1]")
    return max(1, cores // (peers + 1)) if shared else cores


async def open_alone(settings: Settings, *, name: str | None, task: Path) -> tuple[Opening, dict[str, Any]]:
    """Found a run; returns also how others get in, as arguments of `samovar.join`. Raises OSError, ValueError."""
    folder = make_folder(settings.run, task)
    keep_settings(folder, settings)
    (orders, *_), invite = founding_orders(task, settings, folder)
    opening = await open_as(orders if name is None else replace(orders, name=name))
    way = {"invite": invite.to_text()} if invite else {"peer_key": opening.endpoint.id, "insecure": True}
    return opening, {"address": opening.endpoint.address, **way}
