"""How a peer process opens its endpoint: for a launcher, or on its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ...protocols.endpoint import Endpoint
from ...protocols.members.invitation import Invitation
from ...protocols.shaping.transport import Shaped
from ...protocols.transport import PeerId, Transport
from ...protocols.zeromq.transport import KeyPair, ZeroMQTransport
from ..checkpoints.votes import Votes, votes_folder
from ..errors import EvaluationFailed, is_cut_off, is_plain, one_line
from ..machine.open_files import raise_file_limit, require_files
from ..machine.process_memory import limit_memory
from ..peer import Peer
from ..records.record_file import RecordFile
from ..records.records import EventRecord, Record
from ..settings.link_text import parse_link
from ..settings.settings import Settings
from ..training.stop import Stop
from .control import Control, Orders, control_of_this_process
from .inviting import invitation_of, reinvited
from .run_socket import Answer, answered
from .spec import log_path

_ORPHAN_S = 2.0


def open_endpoint(settings: Settings, secret: str | None) -> Endpoint:
    """A ZeroMQ endpoint by the settings, not yet open; with `secret` None it is insecure. Raises OSError when this
    process could not open it, ValueError when its memory cannot be limited."""
    require_files()
    limit_memory(settings.memory_limit)
    keys, rng = None if secret is None else KeyPair.of_secret(secret), random.Random(secrets.randbits(64))
    transport: Transport = ZeroMQTransport(keys, listen=settings.listen, advertise=settings.advertise)
    if settings.link is not None:
        transport = Shaped(transport, parse_link(settings.link), rng, encrypted=keys is not None)
    return Endpoint(transport, patience_s=settings.patience_s, rng=rng)


@dataclass(slots=True)
class Opening:
    """An open endpoint, its orders, and a future for the peer to join through: None to found the run."""

    endpoint: Endpoint
    orders: Orders
    contact: asyncio.Future[PeerId | None]
    stop: Stop
    control: Control | None = None
    listening: asyncio.Task[None] | None = None
    keeping: bool = False
    """True while a checkpoint is being written."""
    forgot: str = ""
    """A call that the script omitted before it ended, for the launcher."""
    _user: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _peer: Peer | None = None
    _answering: asyncio.Task[None] | None = None

    @property
    def settings(self) -> Settings:
        return Settings.from_json(self.orders.settings)

    @property
    def invitation(self) -> Invitation | None:
        """The invitation with which the run begins, by the founder's settings; None without a guest key."""
        guest, wished = self.orders.guest, self.settings
        return None if guest is None else invitation_of(guest, wished.invite_uses, wished.invite_for)

    @property
    def store(self) -> Votes | None:
        """Where this peer keeps its votes on disk. None where it cannot be restarted under its key: only a peer that
        joined with a key file can."""
        if self.control is not None or self.orders.founder or self.settings.key is None:
            return None
        return Votes(votes_folder(Path(self.orders.folder), self.orders.run, self.endpoint.id))

    def ready(self, peer: Peer) -> None:
        """Tell the launcher that `peer` answers other peers now, and later when it has become a member."""
        self._peer = peer
        if (control := self.control) is not None:
            peer.on_view.append(lambda view: control.tell("inside"))
            control.tell("ready", {"id": self.endpoint.id, "address": self.endpoint.address})

    async def reinvited(self, asked: dict[str, Any]) -> dict[str, Any]:
        """This peer's answer about the run's invite (`inviting`)."""
        if self._peer is None:
            return {"error": "this peer takes no part in the run yet: try again"}
        return await reinvited(self._peer.membership.inviting, asked)

    def answer(self, control: Control, asked: dict[str, Any]) -> None:
        """Answer the launcher when the answer is known. It sends one request at a time."""

        async def work() -> None:
            control.tell("answer", await self.reinvited(asked))

        self._answering = asyncio.create_task(work())

    async def open_to_user(self, answer: Answer) -> None:
        """Without a launcher: serve requests at the run's socket until `close`."""
        say = partial(print, "samovar:", file=sys.stderr)
        await self._user.enter_async_context(answered(Path(self.orders.folder), answer, say))

    def keep(self, keeping: bool) -> None:
        """Note that a checkpoint is being written, or no longer is; this process should not be ended meanwhile."""
        self.keeping = keeping
        if self.control is not None:
            self.control.tell("keeping", keeping)

    def ended(self, how: dict[str, Any]) -> None:
        """Tell the launcher how the training ended here."""
        if self.control is not None:
            self.control.tell("ended", how)

    def failed(self, error: BaseException) -> None:
        """Tell the launcher why this process has failed."""
        if self.control is not None:
            tell_failure(self.control, self.orders, error)

    def recorder(self) -> tuple[RecordFile, Callable[[Record], None]]:
        """The peer's record file, and the function that writes to it and tells the launcher."""
        file, first = RecordFile(Path(self.orders.folder), self.orders.name), list[Record]()

        def tell(told: Record) -> None:
            if self.control is not None:
                self.control.tell("record", told.to_json())

        def record(what: Record) -> None:
            while first:
                file.append(first.pop())
            failed = file.append(what)
            tell(what)
            if failed is not None:
                tell(failed)

        if why := self.orders.restarted:  # told at once, written with the first record of the run
            first.append(EventRecord(peer=self.orders.name, time_s=0.0, event="restarted", why=why))
            tell(first[0])
        return file, record

    async def close(self) -> None:
        await self._user.aclose()
        for task in (self.listening, self._answering):
            if task is not None:
                task.cancel()
        if self.control is not None:
            await self.control.close()


def tell_failure(control: Control, orders: Orders, error: BaseException) -> None:
    """Tell a launcher that this peer has failed, that all peers must fail, or that this one lost others it needs; and
    where the traceback is if one is needed."""
    for_all = isinstance(error, EvaluationFailed)
    where = "" if is_plain(error) and not for_all else f"; see {log_path(Path(orders.folder), orders.name)}"
    kind = "error for all" if for_all else "cut off" if is_cut_off(error) else "error"
    control.tell(kind, f"{one_line(error)}{where}")


async def orders_of_launcher() -> tuple[Control, Orders]:
    """The orders of this spawned process. Raises ConnectionError when the launcher is gone already."""
    raise_file_limit()
    control = await control_of_this_process()
    kind, content = await control.hear()
    if kind != "orders":
        raise ConnectionError("the launcher of this process is gone")
    return control, Orders(**content)


async def open_as(orders: Orders) -> Opening:
    """Open the endpoint that `orders` ask for. Raises OSError, RuntimeError."""
    endpoint = open_endpoint(Settings.from_json(orders.settings), orders.secret)
    await endpoint.open()
    for key in orders.admit:
        endpoint.admit(key)
    opening = Opening(endpoint, orders, asyncio.get_running_loop().create_future(), Stop())
    if orders.founder:
        opening.contact.set_result(None)
    return opening


async def open_for_launcher(control: Control, orders: Orders) -> Opening:
    """Open the endpoint that `orders` ask for, and follow the launcher's messages from now on."""
    opening = await open_as(orders)
    opening.control = control
    opening.listening = asyncio.create_task(_listen(opening, control))
    return opening


async def _listen(opening: Opening, control: Control) -> None:
    while True:
        kind, content = await control.hear()
        if kind == "contact":
            if content is not None:
                opening.endpoint.dial(content["id"], content["address"])
            if not opening.contact.done():
                opening.contact.set_result(content and content["id"])
        elif kind == "invite":
            opening.answer(control, content)
        elif kind == "gone":
            opening.endpoint.gone(content["id"], content["why"])
        elif kind in ("stop", "closed"):
            opening.stop.set()
            if kind == "closed":
                asyncio.get_running_loop().call_later(_ORPHAN_S, _end_orphan, opening)
                return


def _end_orphan(opening: Opening) -> None:
    """End this process, whose launcher is gone, whatever it is doing; only a checkpoint being written is waited for."""
    if not opening.keeping:
        os._exit(1)
    asyncio.get_running_loop().call_later(_ORPHAN_S, _end_orphan, opening)
