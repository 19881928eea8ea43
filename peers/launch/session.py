"""The session of a peer process: its open endpoint, its settings and, if a launcher spawned it, their control line."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import secrets
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...protocols.endpoint import Endpoint
from ...protocols.members.invitation import Invitation
from ...protocols.members.view import View
from ...protocols.shaping.budgeted_transport import Budgeted
from ...protocols.shaping.shaped_transport import Shaped
from ...protocols.transport import PeerId, Transport
from ...protocols.zeromq.transport import KeyPair, ZeroMQTransport
from ..checkpoints.votes import Votes, votes_folder
from ..conversations.registry import conversation
from ..errors import EvaluationFailed, is_cut_off, is_plain, one_line
from ..machine.open_files import raise_file_limit, require_files
from ..machine.process_memory import limit_memory
from ..peer import Peer
from ..place import Place
from ..records.record_file import RecordFile
from ..records.records import EventRecord, Record
from ..run_settings.settings import Settings
from ..settings.edge import budget_of
from ..settings.link_text import parse_link
from ..training.stop import Stop
from .control import Control, Orders, control_of_this_process
from .invite_request import invitation_of, reinvited
from .run_socket import Answer, answered
from .spec import log_path

_ORPHAN_S = 2.0


def open_endpoint(settings: Settings, secret: str | None) -> Endpoint:
    """A ZeroMQ endpoint by the settings, not yet open; its traffic is slowed down to ``--link`` and kept within
    ``--budget``, where these are set. The memory of this process is limited as the settings say. `secret`: the peer's
    secret key, hexadecimal; None: an insecure endpoint. Raises OSError when this process has too few file descriptors,
    ValueError when its memory cannot be limited."""
    require_files()
    limit_memory(settings.memory_limit)
    keys, rng = None if secret is None else KeyPair.of_secret(secret), random.Random(secrets.randbits(64))
    transport: Transport = ZeroMQTransport(keys, listen=settings.listens_at, advertise=settings.advertise)
    if settings.link is not None:
        transport = Shaped(transport, parse_link(settings.link), rng, encrypted=keys is not None)
    if (budget := budget_of(settings)) is not None:
        transport = Budgeted(transport, budget, encrypted=keys is not None)
    return Endpoint(transport, patience_s=settings.patience_s, rng=rng)


@dataclass(slots=True)
class Session:
    """The session of one peer process. `contact`: a future of the peer to join through; its value None means that this
    peer founds the run. `stop`: the request to stop this peer. `control`: the line to the launcher; None: no launcher
    spawned this process. `listening`: the task that reads that line; None: there is none."""

    endpoint: Endpoint
    orders: Orders
    settings: Settings
    contact: asyncio.Future[PeerId | None]
    stop: Stop
    control: Control | None = None
    listening: asyncio.Task[None] | None = None
    keeping: bool = False
    """True while a checkpoint is being written."""
    forgot: str = ""
    """A call that a script omitted before it ended, in words for the launcher's user; "": none."""
    _user: contextlib.AsyncExitStack = field(default_factory=contextlib.AsyncExitStack)
    _peer: Peer | None = None
    _answering: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def invitation(self) -> Invitation | None:
        """The invitation with which the run begins, from the orders' guest key and the settings; None without a guest
        key."""
        guest, wished = self.orders.guest, self.settings
        return None if guest is None else invitation_of(guest, wished.invite_uses, wished.invite_for)

    @property
    def store(self) -> Votes | None:
        """The storage of this peer's Paxos votes. None unless the peer joined a run with a key file, with which its
        user can restart it as the same peer."""
        if self.control is not None or self.orders.founder or self.settings.key is None:
            return None
        return Votes(votes_folder(Path(self.orders.folder), self.orders.run, self.endpoint.id))

    @property
    def place(self) -> Place:
        """The peer's place in the run, by its orders and settings."""
        orders, settings = self.orders, self.settings
        waits_for_others = orders.founder and bool(orders.role)
        return Place(
            name=orders.name,
            data_shard=orders.data_shard,
            run=orders.run,
            link=settings.link or "",
            site=settings.site or "",
            role=orders.role,
            invitation=self.invitation,
            store=self.store,
            names_members=self.control is None or waits_for_others,
            former_s=orders.resumed_s,
        )

    def ready(self, peer: Peer) -> None:
        """Note that `peer` answers other peers from now on, which `reinvited` needs, and tell the launcher so if there
        is one. Later, at each new list of members, tell it that the peer is a member, and, until the run begins, how
        many members train."""
        self._peer = peer
        if (control := self.control) is not None:

            def follow(view: View) -> None:
                control.tell("inside")
                if not view.started:
                    control.tell("gathered", sum(not member.attributes.role for member in view.members))

            peer.membership.on_view.append(follow)
            control.tell("ready", {"id": self.endpoint.id, "address": self.endpoint.address})

    @property
    def dialable(self) -> list[dict[str, str]]:
        """`id` and `address` of the present members that can be dialled, this peer first; none before `ready`."""
        if self._peer is None:
            return []
        me, members = self._peer.membership.me, self._peer.membership.view.members
        found = (me, *(one for one in members if one.id != me.id))
        return [{"id": one.id, "address": one.address} for one in found if one.dialable]

    async def reinvited(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Report, replace or revoke the run's invite, as the request `asked` wants (`invite_request`), and return the
        answer. It has an `error` when that fails, or this peer is not in the run yet."""
        if self._peer is None:
            return {"error": "this peer takes no part in the run yet: try again"}
        return await reinvited(self._peer.membership.inviting, asked)

    def answer(self, control: Control, ask: int, asked: dict[str, Any]) -> None:
        """Answer the launcher's request `asked` with number `ask`, in a task of its own, and send the answer by
        `control`."""

        async def work() -> None:
            control.tell("answer", [ask, await self.reinvited(asked)])

        answering = asyncio.create_task(work())
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def open_to_user(self, answer: Answer) -> None:
        """Serve requests at the run's socket until `close`. Called in a process without a launcher, which would serve
        them otherwise. `answer`: answers a request. If no socket can be made, prints a line on stderr and returns."""
        say = partial(print, "samovar:", file=sys.stderr)
        await self._user.enter_async_context(answered(Path(self.orders.folder), answer, say))

    def keep(self, keeping: bool) -> None:
        """Note, and tell the launcher, that a checkpoint is being written (`keeping`), or no longer is. The launcher
        gives the process more time to end meanwhile."""
        self.keeping = keeping
        if self.control is not None:
            self.control.tell("keeping", keeping)

    def ended(self, how: dict[str, Any]) -> None:
        """Tell the launcher, if there is one, how this peer's training ended. `how`: a JSON object that becomes
        `Spawned.ended`."""
        if self.control is not None:
            self.control.tell("ended", how)

    def failed(self, error: BaseException) -> None:
        """Tell the launcher, if there is one, why this process has failed."""
        if self.control is not None:
            tell_failure(self.control, self.orders, error)

    def recorder(self) -> tuple[RecordFile, Callable[[Record], None]]:
        """Open the peer's record file. Returns it, for the caller to close, and a function that writes a record to it
        and sends the record to the launcher, if there is one. The records of a peer that was restarted begin with an
        event that says so."""
        columns = conversation(self.settings).columns
        file, first = RecordFile(Path(self.orders.folder), self.orders.name, columns), list[Record]()

        def tell(told: Record) -> None:
            if self.control is not None:
                self.control.tell("record", told.to_json())

        def record(what: Record) -> None:
            while first:
                file.append(first.pop())
            if isinstance(what, EventRecord) and what.is_entry:
                what = replace(what, clock_s=time.monotonic())
            failed = file.append(what)
            tell(what)
            if failed is not None:
                tell(failed)

        if why := self.orders.restarted:  # told at once, written with the first record of the run
            first.append(EventRecord(peer=self.orders.name, time_s=0.0, event="restarted", why=why))
            tell(first[0])
        return file, record

    async def close(self) -> None:
        """Serve the user's and the launcher's requests no longer, and close the control line. The endpoint stays
        open."""
        await self._user.aclose()
        for task in (self.listening, *self._answering):
            if task is not None:
                task.cancel()
        if self.control is not None:
            await self.control.close()


def tell_failure(control: Control, orders: Orders, error: BaseException) -> None:
    """Send the launcher this peer's error, as one line. Its kind says whether all peers will fail with this error, this
    peer lost contact with peers that it needs, or neither. The line names the log with the traceback if the error's
    text alone is not enough."""
    for_all = isinstance(error, EvaluationFailed)
    where = "" if is_plain(error) and not for_all else f"; see {log_path(Path(orders.folder), orders.name)}"
    kind = "error for all" if for_all else "cut off" if is_cut_off(error) else "error"
    control.tell(kind, f"{one_line(error)}{where}")


async def orders_of_launcher() -> tuple[Control, Orders]:
    """Open this spawned process's control line, and wait for the orders from it; returns both. Raises ConnectionError
    when the launcher has ended."""
    raise_file_limit()
    control = await control_of_this_process()
    kind, content = await control.hear()
    if kind != "orders":
        raise ConnectionError("the launcher of this process is gone")
    return control, Orders(**content)


async def open_as(orders: Orders) -> Session:
    """Open the session of the peer that `orders` describe, and its endpoint, which admits the keys in `orders.admit`.
    The `contact` of a founder is done, with None; that of another peer the caller sets. Raises OSError, RuntimeError,
    ValueError."""
    settings = Settings.from_json(orders.settings)
    endpoint = open_endpoint(settings, orders.secret)
    await endpoint.open()
    for key in orders.admit:
        endpoint.admit(key)
    session = Session(endpoint, orders, settings, asyncio.get_running_loop().create_future(), Stop())
    if orders.founder:
        session.contact.set_result(None)
    return session


async def open_for_launcher(control: Control, orders: Orders) -> Session:
    """Open the session of the peer that `orders` describe, and from now on act on the launcher's messages: they set
    `contact` and `stop`, tell of peers whose processes have ended, and ask about the invite. If the line closes, the
    peer is stopped, and this process exits 2 s later, but not while a checkpoint is being written. Raises as
    `open_as`."""
    session = await open_as(orders)
    session.control = control
    session.listening = asyncio.create_task(_listen(session, control))
    return session


async def _listen(session: Session, control: Control) -> None:
    while True:
        kind, content = await control.hear()
        if kind == "contact":
            if content is not None:
                session.endpoint.dial(content["id"], content["address"])
            if not session.contact.done():
                session.contact.set_result(content and content["id"])
        elif kind == "invite":
            session.answer(control, *content)
        elif kind == "gone":
            session.endpoint.gone(content["id"], content["why"])
        elif kind in ("stop", "closed"):
            session.stop.set()
            if kind == "closed":
                asyncio.get_running_loop().call_later(_ORPHAN_S, _end_orphan, session)
                return


def _end_orphan(session: Session) -> None:
    """End this process, because its launcher has ended. A checkpoint that is being written is finished first; all other
    work is dropped."""
    if not session.keeping:
        os._exit(1)
    asyncio.get_running_loop().call_later(_ORPHAN_S, _end_orphan, session)
