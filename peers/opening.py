"""How a peer process comes to be on the net: spawned by a launcher, or on its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import resource
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..protocols.endpoint import Endpoint
from ..protocols.shaping.transport import Shaped
from ..protocols.transport import PeerId, Transport
from ..protocols.zeromq.transport import KeyPair, ZeroMQTransport
from .control import Control, Orders, control_of_this_process
from .errors import EvaluationFailed, is_plain, one_line
from .links import parse_link
from .orders import log_path
from .records import Record, RecordFile
from .settings import Settings
from .stop import Stop

_ORPHAN_S = 2.0


def open_endpoint(settings: Settings, secret: str | None) -> Endpoint:
    """A ZeroMQ endpoint as the settings want it, not yet open; with `secret` None it is insecure."""
    keys, rng = None if secret is None else KeyPair.of_secret(secret), random.Random(secrets.randbits(64))
    transport: Transport = ZeroMQTransport(keys, listen=settings.listen, advertise=settings.advertise)
    if settings.link is not None:
        transport = Shaped(transport, parse_link(settings.link), rng, encrypted=keys is not None)
    return Endpoint(transport, patience_s=settings.patience_s, rng=rng)


def raise_file_limit() -> None:
    """Every link takes a few descriptors; the soft limit of many systems is made for other programs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@dataclass(slots=True)
class Opening:
    """An open endpoint, the orders, and how to hear whom to join through: None to found the run."""

    endpoint: Endpoint
    orders: Orders
    contact: asyncio.Future[PeerId | None]
    stop: Stop
    control: Control | None = None
    listening: asyncio.Task[None] | None = None

    @property
    def settings(self) -> Settings:
        return Settings.from_json(self.orders.settings)

    def ready(self) -> None:
        """Tell the launcher that others may call now: the peer is there to answer them."""
        if self.control is not None:
            self.control.tell("ready", {"id": self.endpoint.id, "address": self.endpoint.address})

    def ended(self, how: dict[str, Any]) -> None:
        """Tell the launcher how the training ended here."""
        if self.control is not None:
            self.control.tell("ended", how)

    def failed(self, error: BaseException) -> None:
        """Tell the launcher why this process cannot do its work."""
        if self.control is not None:
            tell_failure(self.control, self.orders, error)

    def recorder(self) -> tuple[RecordFile, Callable[[Record], None]]:
        """The peer's record file, and the function that writes to it and tells the launcher."""
        file = RecordFile(Path(self.orders.folder), self.orders.name)

        def record(what: Record) -> None:
            file.append(what)
            if self.control is not None:
                self.control.tell("record", what.to_json())

        return file, record

    async def close(self) -> None:
        if self.listening is not None:
            self.listening.cancel()
        if self.control is not None:
            await self.control.close()


def tell_failure(control: Control, orders: Orders, error: BaseException) -> None:
    """Tell a launcher why its peer cannot do its work, or none can, and where the traceback is if one is needed."""
    for_all = isinstance(error, EvaluationFailed)
    where = "" if is_plain(error) and not for_all else f"; see {log_path(Path(orders.folder), orders.name)}"
    control.tell("error for all" if for_all else "error", f"{one_line(error)}{where}")


async def orders_of_launcher() -> tuple[Control, Orders]:
    """What this process was spawned for. Raises ConnectionError when the launcher is gone already."""
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
    """The same, for a launcher: do as it says from now on."""
    opening = await open_as(orders)
    opening.control = control
    opening.listening = asyncio.create_task(_listen(opening, control))
    return opening


async def _listen(opening: Opening, control: Control) -> None:
    while True:
        kind, content = await control.hear()
        if kind == "contact" and not opening.contact.done():
            opening.endpoint.dial(content["id"], content["address"])
            opening.contact.set_result(content["id"])
        elif kind == "gone":
            opening.endpoint.gone(content["id"], content["why"])
        elif kind in ("stop", "closed"):
            opening.stop.set()
            if kind == "closed":
                # The launcher is gone. Whatever holds this process up, it must not become an orphan.
                asyncio.get_running_loop().call_later(_ORPHAN_S, os._exit, 1)
                return
