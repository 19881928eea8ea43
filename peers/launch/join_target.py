"""Joining a run from another machine, and founding a run in this process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from ...protocols.addresses import dialable, is_here, split_address
from ...protocols.endpoint import Endpoint
from ...protocols.link.link import PeerLost
from ...protocols.members.hello import RunIs, ask_run
from ...protocols.members.invites import ask_admission
from ...protocols.members.view import NAME_LETTERS_MAX
from ...protocols.transport import PeerId
from ...protocols.zeromq.transport import KeyPair
from ..checkpoints.checkpoint import CheckpointError, numbers_of
from ..checkpoints.votes import votes_folder
from ..run_settings.roles import check_servers
from ..run_settings.settings import Settings, Tell
from ..settings.edge import begin_with
from ..settings.fields import SettingsError
from ..training.stop import Stop
from .control import Orders
from .keys import Invite, read_key
from .run_folder import ANOTHER, cut_off, keep_settings, make_folder, spent
from .session import Session, open_as, open_endpoint
from .spec import checkpoint_path, founding_orders
from .unbegun import removed_if_refused

T = TypeVar("T")

_AS_BEFORE = f"{ANOTHER}, or go on as its peer, by the --key FILE that this had, if its run is still the same"
_ANOTHER_RUN = f"with this --key it is not a peer of the run at {{}}, as one that was resumed is another run: {ANOTHER}"
"""Advice for a newcomer whose ``--run`` holds a run: without a key file, and with one."""

_UNKNOWN_KEY = "refused our key"
_ADVICE = {
    "protocol version": "install the same samovar on both sides",
    _UNKNOWN_KEY: "the run does not know this key, or its invite was revoked: ask there for its present join line",
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
    _UNKNOWN_KEY: "it refused our key",
}
"""Failure reasons reworded for a user who joins and has not dealt with keys."""
_TRY_FOR = 12
"""How long a contact that does not answer is asked again, as a multiple of the patience."""
_PAUSE_MAX_S = 3.0
_KEY_LETTERS = 6


def _sign_in(why: str) -> str:
    """The phrase of `_ADVICE` in `why` that identifies the failure; "": the contact exists but does not answer now."""
    return next(sign for sign in _ADVICE if sign in why)


class JoinFailed(ValueError):
    """The contact of a run cannot be reached, or does not admit or answer this peer. The text is one line: the address,
    the reason (`why`), and advice to the user (`advice`; "": the reason contains it). Other causes have other errors:
    `JoinRefused` when the run answers and does not let this peer in, SettingsError for settings that do not fit."""

    def __init__(self, address: str, why: str) -> None:
        self._given, sign = (address, why), _sign_in(why)
        self.why, self.advice = _MEANS.get(sign, why.replace(f" at {address}", "")), _ADVICE[sign]
        super().__init__("; ".join(filter(None, [f"cannot join at {address}: {self.why}", self.advice])))

    def __reduce__(self) -> tuple[type[JoinFailed], tuple[str, str]]:
        """For pickle and copy, which would otherwise call the class with the text alone."""
        return type(self), self._given


@dataclass(frozen=True, slots=True)
class JoinTarget:
    """The data by which a peer reaches a run and enters it. `address`, `contact`: address and public key of a member;
    `own`: this peer's key pair, None in an insecure run; `guest`: the invite's key pair, by which the run lets in the
    own key; None: there is no invite."""

    address: str
    contact: PeerId
    own: KeyPair | None
    guest: KeyPair | None

    @classmethod
    def of(cls, address: str, invite: str | None, peer_key: str | None, settings: Settings) -> JoinTarget:
        """The target from a user's arguments, which are those of `samovar.join`, None where not given: the address and
        an `invite`; or, with ``key`` in `settings`, or in an insecure run, the public key `peer_key` of the peer at
        that address. Raises ValueError, with one line of text, when they are invalid or do not suffice to join."""
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

    def lasting(self, settings: Settings) -> KeyPair | None:
        """This peer's key pair if it is from a file, so that the peer has it after a restart too; else None."""
        return self.own if settings.key else None

    async def enter(self, settings: Settings) -> Endpoint:
        """Have the run let in this peer's key by the invite, if there is one, and open an endpoint that dials the
        contact. The caller must close it; this peer is no member yet. An invite that was revoked does not matter to a
        key from a file, which the run may have let in before. Raises JoinFailed when the invite's way in fails, and the
        errors of `open_endpoint`."""
        if self.guest is not None and self.own is not None:
            guest = open_endpoint(settings.changed(edge=False, listen="tcp://127.0.0.1:0"), self.guest.secret)
            await guest.open()
            key = self.own.public
            try:
                await self._knock(guest, lambda: ask_admission(guest, self.contact, key))
            except JoinFailed as refused:  # the run may know a lasting key, which then needs no invite any more
                if self.lasting(settings) is None or refused.why != _MEANS[_UNKNOWN_KEY]:
                    raise
            finally:
                guest.abort()
        endpoint = open_endpoint(settings, self.own.secret if self.own else None)
        await endpoint.open()
        endpoint.dial(self.contact, self.address)
        return endpoint

    async def _knock(self, endpoint: Endpoint, ask: Callable[[], Awaitable[T]]) -> T:
        """The contact's answer to `ask`. The contact may be busy, or have more callers than it can serve. While it
        exists but gives no answer, `ask` is repeated after random pauses. Raises JoinFailed."""
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
        """Ask the contact about its run, again and again while it is there but busy, for up to 12 times the patience.
        `endpoint`: the one that `enter` returned. Returns the answer: the run's name and settings. Raises
        JoinFailed."""
        return await self._knock(endpoint, lambda: ask_run(endpoint, self.contact))

    async def closed(self, lost: PeerLost) -> JoinFailed:
        """The error to raise for `lost`, the loss of the contact. It tells an unknown host name apart, which is looked
        up here, because ZeroMQ reports an unknown host as a port without a listener."""
        host, port = split_address(self.address)
        try:
            await asyncio.get_running_loop().getaddrinfo(host.strip("[]"), port)
        except OSError:
            return JoinFailed(self.address, f"a host of the name {host} is not known here")
        return JoinFailed(self.address, lost.why)


def own_name(said: str | None, lasting: KeyPair | None) -> str:
    """This peer's display name. `said`: as its user gives it; None: it is made of the machine's name and, if the peer
    has a `lasting` key, of that, so that it has the name again when it comes back, else of the process id. Raises
    SettingsError for an invalid name."""
    ending = lasting.public[:_KEY_LETTERS] if lasting else os.getpid()
    name = f"{socket.gethostname()[: NAME_LETTERS_MAX - 12]}-{ending}" if said is None else said
    if not 0 < len(name) <= NAME_LETTERS_MAX or not name.isprintable():
        wanted = f"1 to {NAME_LETTERS_MAX} printable characters"
        raise SettingsError(f"must be {wanted}, got {name[:80]!r}", "name", "--name")
    return name


async def open_at(
    target: JoinTarget,
    settings: Settings,
    stop: Stop,
    *,
    name: str,
    task: Path,
    role: str = "",
    tell: Tell | None = None,
    check: Callable[[Settings], None] = lambda settings: None,
) -> Session:
    """Connect to the run at `target`, adopt the settings that all its peers share, and make a run folder on this
    machine, or go on in the folder of an earlier process of this peer. The returned session has an open endpoint;
    `Training.run` then joins the run through its `contact`. `stop`: the request to stop this peer, which the session
    keeps; `name`: the peer's display name; `task`: its task file or script. `role`: of this peer in the run; "": it
    trains. `tell`: called with a line when this peer's arguments are not the run's; None: that raises SettingsError.
    `check`: called with the settings, before there is a folder; it may raise SettingsError. Raises JoinFailed and other
    ValueErrors, OSError; the endpoint is then closed."""
    settings.check_one_peer()
    endpoint = await target.enter(settings)
    try:
        run = await target.ask_run(endpoint)
        settings = settings.with_agreed(run.settings, tell)
        check(settings)
        if role:
            check_servers(settings)
        again = settings.run is not None and votes_folder(Path(settings.run), run.run, endpoint.id).is_dir()
        if again:
            _go_on_with_budget(endpoint, Path(settings.run or "."), name)
        advice = _ANOTHER_RUN.format(target.address) if settings.key else _AS_BEFORE
        folder = Path(settings.run or ".") if again else make_folder(settings.run, task, advice=advice)
        with removed_if_refused(folder, settings):
            keep_settings(folder, settings)
    except BaseException:
        endpoint.abort()
        raise
    contact: asyncio.Future[PeerId | None] = asyncio.get_running_loop().create_future()
    contact.set_result(target.contact)
    orders = Orders(
        task=str(task),
        settings=settings.to_json(),
        run=run.run,
        folder=str(folder),
        name=name,
        data_shard=0,
        secret=None,
        admit=[],
        guest=None,
        founder=False,
        resume=None,
        resumed_s=spent(folder).recorded_s if again else 0.0,
        cut_off=cut_off(folder, name) if again else "",
        threads=settings.threads or cores_for_one(target.address, settings.peers),
        role=role,
    )
    return Session(endpoint, orders, settings, contact, stop)


def _go_on_with_budget(endpoint: Endpoint, folder: Path, name: str) -> None:
    """Begin with the bytes that an earlier process of this peer had left of the day: a restart brings no new
    allowance."""
    with contextlib.suppress(CheckpointError):  # it had none yet
        begin_with(endpoint.budget, numbers_of(checkpoint_path(folder, name)))


def cores_for_one(contact: str, peers: int) -> int:
    """Number of PyTorch threads for one peer: all cores of this machine. If `contact`, the address of a peer of the
    run, is on this machine too, the run's `peers` are taken to be there, and this one gets a share of 1 in `peers` + 1,
    at least 1 core, because more threads than cores slow all of them down."""
    cores = os.cpu_count() or 1
    return max(1, cores // (peers + 1)) if is_here(split_address(contact)[0]) else cores


async def open_alone(settings: Settings, *, name: str | None, task: Path) -> tuple[Session, dict[str, Any]]:
    """Found a run in this process, as a peer of this `name` (None: "0"), for the task file or script `task`. Returns
    its session, and the arguments of `samovar.join` with which others join it. Raises OSError, ValueError."""
    settings.check_one_peer()
    settings.check_founding()
    folder = make_folder(settings.run, task)
    with removed_if_refused(folder, settings):
        keep_settings(folder, settings)
        (orders, *_), invite = founding_orders(task, settings, folder)
        session = await open_as(orders if name is None else replace(orders, name=name))
    way = {"invite": invite.to_text()} if invite else {"peer_key": session.endpoint.id, "insecure": True}
    return session, {"address": session.endpoint.address, **way}
