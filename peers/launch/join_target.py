"""The entrance to a run: how a newcomer from another machine gets in."""

from __future__ import annotations

import asyncio
import os
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...protocols.addresses import dialable, local_addresses, split_address
from ...protocols.endpoint import Endpoint
from ...protocols.link.link import PeerLost
from ...protocols.members.hello import RunIs, ask_run
from ...protocols.members.invites import ask_admission
from ...protocols.members.view import NAME_LETTERS_MAX
from ...protocols.transport import PeerId
from ...protocols.zeromq.transport import KeyPair
from ..checkpoints.votes import votes_folder
from ..settings.fields import SettingsError
from ..settings.settings import Settings
from ..training.stop import Stop
from .control import Orders
from .keys import Invite, read_key
from .run_folder import keep_settings, make_folder
from .session import Opening, open_as, open_endpoint
from .spec import founding_orders

T = TypeVar("T")

_ADVICE = {
    "protocol version": "install the same samovar on both sides",
    "refused our key": "the run does not know this key, or its invite was revoked: ask there for its present join line",
    "handshake failed": "ask there for its present join line",
    "not known here": "look at how it is spelt, or give an IP address",
    "nobody listens": "is the run still there? Ask for its present join line",
    "closed the connection": "is the run still there? Ask for its present join line",
    "this invite": "",
    "no answer": "can this machine reach it? Look for a firewall, or for an address that only its own network knows",
    "": "it is there, but busy, or stopped: try again, or by another line of join.txt in the run's folder",
}
_MEANS = {
    "handshake failed": "another run than that of this join line is there now, or only one side is --insecure "
    "(the handshake failed)",
}
"""Failure reasons reworded for a user who joins and has not dealt with keys."""
_TRY_FOR = 12
"""How long to retry at a contact that does not answer, as a multiple of the patience."""
_PAUSE_MAX_S = 3.0


def _sign_in(why: str) -> str:
    """The phrase of `_ADVICE` in `why` that identifies the failure; "": the contact exists and does not answer now."""
    return next(sign for sign in _ADVICE if sign in why)


class NoEntry(ValueError):
    """A run cannot be entered. One line: where, why, and what to do."""

    def __init__(self, address: str, why: str) -> None:
        sign = _sign_in(why)
        self.why, self.advice = _MEANS.get(sign, why.replace(f" at {address}", "")), _ADVICE[sign]
        super().__init__("; ".join(filter(None, [f"cannot join at {address}: {self.why}", self.advice])))


@dataclass(frozen=True, slots=True)
class Door:
    """The contact's address and key, this peer's own key, and a guest key by which the own one is admitted."""

    address: str
    contact: PeerId
    own: KeyPair | None
    guest: KeyPair | None

    @classmethod
    def of(cls, address: str, invite: str | None, peer_key: str | None, settings: Settings) -> Door:
        """Raises ValueError, in one line, when the arguments do not suffice to get in."""
        dialable(address)
        if settings.insecure:
            if peer_key is None:
                raise ValueError("an insecure run needs the peer's key too, from the line that `samovar train` printed")
            return cls(address, peer_key, None, None)
        own = read_key(Path(settings.key)) if settings.key else KeyPair.new()
        if invite is not None:
            parsed = Invite.from_text(invite)
            return cls(address, parsed.contact, own, parsed.guest)
        if peer_key is None or settings.key is None:
            raise ValueError("say how to get in: --invite TEXT, or --key FILE and --peer-key KEY, or --insecure")
        if len(peer_key) != 64 or not set(peer_key) <= set("0123456789abcdef"):
            raise ValueError(f"{peer_key!r:.80} is no peer's key: that has 64 hexadecimal characters")
        return cls(address, peer_key, own, None)

    async def enter(self, settings: Settings) -> Endpoint:
        """An open endpoint that the contact accepts messages from. Raises NoEntry, OSError."""
        if self.guest is not None and self.own is not None:
            guest = open_endpoint(replace(settings, listen="tcp://127.0.0.1:0"), self.guest.secret)
            await guest.open()
            key = self.own.public
            try:
                await self._knock(guest, lambda: ask_admission(guest, self.contact, key))
            finally:
                guest.abort()
        endpoint = open_endpoint(settings, self.own.secret if self.own else None)
        await endpoint.open()
        endpoint.dial(self.contact, self.address)
        return endpoint

    async def _knock(self, endpoint: Endpoint, ask: Callable[[], Awaitable[T]]) -> T:
        """The contact's answer to `ask`. The contact may be busy, or have more callers than it can serve. While it
        exists and is silent, or has dropped this peer, `ask` is repeated after random pauses. Raises NoEntry."""
        clock, chance, pause_s = asyncio.get_running_loop().time, random.Random(), 0.2
        until_s = clock() + _TRY_FOR * endpoint.patience_s
        while True:
            endpoint.dial(self.contact, self.address)
            try:
                return await ask()
            except PeerLost as lost:
                if _sign_in(lost.why) or clock() >= until_s:
                    raise await self.closed(lost) from None
            await asyncio.sleep(chance.uniform(0.0, pause_s))
            pause_s = min(2 * pause_s, _PAUSE_MAX_S)

    async def ask_run(self, endpoint: Endpoint) -> RunIs:
        """The description of the run behind the contact. Raises NoEntry."""
        return await self._knock(endpoint, lambda: ask_run(endpoint, self.contact))

    async def closed(self, lost: PeerLost) -> NoEntry:
        """The error for a `lost` contact. An unknown host is found here, because ZeroMQ reports it as a port without a
        listener."""
        host, port = split_address(self.address)
        try:
            await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
        except OSError:
            return NoEntry(self.address, f"a host of the name {host} is not known here")
        return NoEntry(self.address, lost.why)


def own_name(said: str | None) -> str:
    """This peer's name: as its user `said`, else made of its machine's name. Raises SettingsError for an invalid
    name."""
    name = f"{socket.gethostname()[: NAME_LETTERS_MAX - 12]}-{os.getpid()}" if said is None else said
    if not 0 < len(name) <= NAME_LETTERS_MAX or not name.isprintable():
        wanted = f"1 to {NAME_LETTERS_MAX} printable characters"
        raise SettingsError(f"must be {wanted}, got {name[:80]!r}", "name", "--name")
    return name


async def open_at(door: Door, settings: Settings, stop: Stop, *, name: str, task: Path) -> Opening:
    """Enter through `door`, adopt the settings that all peers of the run share, and make the run's folder here.

    Raises NoEntry and other ValueErrors, OSError.
    """
    settings = settings.of_peer(0)
    endpoint = await door.enter(settings)
    try:
        run = await door.ask_run(endpoint)
        settings = settings.with_agreed(run.settings)
        again = settings.run is not None and votes_folder(Path(settings.run), run.run, endpoint.id).is_dir()
        folder = Path(settings.run) if again and settings.run is not None else make_folder(settings.run, task)
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
    """The cores for one peer: all of this machine's, or a share when the run's peers are on it too, because more
    threads than cores slow all peers down."""
    cores, host = os.cpu_count() or 1, split_address(contact)[0]
    shared = host.startswith("127.") or host in (*local_addresses(), "localhost", socket.gethostname(), "[::1]")
    return max(1, cores // (peers + 1)) if shared else cores


async def open_alone(settings: Settings, *, name: str | None, task: Path) -> tuple[Opening, dict[str, Any]]:
    """Found a run. Also returns how others get in, as arguments of `samovar.join`. Raises OSError, ValueError."""
    folder = make_folder(settings.run, task)
    keep_settings(folder, settings)
    (orders, *_), invite = founding_orders(task, settings, folder)
    opening = await open_as(orders if name is None else replace(orders, name=name))
    way = {"invite": invite.to_text()} if invite else {"peer_key": opening.endpoint.id, "insecure": True}
    return opening, {"address": opening.endpoint.address, **way}
