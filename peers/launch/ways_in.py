"""The join lines of a run that was begun or joined on this machine, each a command by which others join, and changes of
the run's invite by its user."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import one_line
from ..whole_file import replaced
from .invite_request import invitation_of, question
from .keys import Invite
from .run_folder import WAYS_IN_FILE
from .session import Session

Asks = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]
"""Sends a request (`invite_request.question`) to a peer of the run, which usually runs in another process, and returns
its answer (`invite_request.reinvited`)."""


class WaysIn:
    """The join lines of one run, which are also written to its `folder`. `task`: its task file or script, of which
    others need a copy. `invite`: its invite; None: the run is not encrypted. `asks`: sends a request to a peer of the
    run. `in_python`: the run was begun by `samovar.join` without a file, as in a notebook, so others call that too.
    `protocol`: the user's file with the run's conversation, of which others need a copy; None: the conversation is one
    that others have installed. `arguments`: the own arguments of the task or script, which others have to give too."""

    def __init__(
        self,
        task: Path,
        folder: Path,
        invite: Invite | None,
        asks: Asks,
        *,
        in_python: bool = False,
        protocol: str | None = None,
        arguments: str = "",
    ) -> None:
        self._task, self._folder, self._invite, self._asks, self._in_python = task, folder, invite, asks, in_python
        self._protocol, self._arguments = protocol, arguments
        self._encrypted, self._answering = invite is not None, asyncio.Lock()
        self._members: list[dict[str, str]] = []

    def met(self, members: list[dict[str, str]]) -> str:
        """Set the peers to join through, each with its `id` and `address`, and write the lines to the run's folder.
        Returns the reason if they could not be written, else ""."""
        self._members = members
        return self._written()

    @property
    def lines(self) -> list[str]:
        """The commands to join from another machine, one through each peer; none before `met`, and none when the invite
        was revoked."""
        return [] if self._encrypted and self._invite is None else [self._line(member) for member in self._members]

    def _line(self, member: dict[str, str]) -> str:
        address, key = member["address"], member["id"]
        invite = replace(self._invite, contact=key) if self._invite else None
        if self._in_python:
            how = f"invite={invite.to_text()!r}" if invite else f"peer_key={key!r}, insecure=True"
            how += f", protocol={self._protocol!r}" if self._protocol else ""
            return f"samovar.join({address!r}, {how})"
        how = f"--invite {invite.to_text()}" if invite else f"--insecure --peer-key {key}"
        how += f" --protocol {self._protocol}" if self._protocol else ""
        how += f" -- {self._arguments}" if self._arguments else ""
        return f"samovar join {address} {self._task} {how}"

    def _written(self) -> str:
        """Write all lines, because the peer of the first one may have left. Only the owner may read the file, because
        an invite is a password. Returns the reason if it could not be written, else ""; the lines of before then
        stay."""
        try:
            with replaced(self._folder / WAYS_IN_FILE) as file:
                file.touch(0o600)
                file.chmod(0o600)
                file.write_text("".join(f"{line}\n" for line in self.lines), encoding="utf-8")
        except OSError as error:
            return f"{one_line(error)}: how to join through the other peers is not written down"
        return ""

    async def answer(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Do what a request of `samovar invite`, made by `asking`, wants, and return the answer: the run's invitation,
        with the first join line as `line` ("": there is none); or an `error`, among others before `met`, when the
        invite can only be revoked. If the invite was changed, its `unwritten` says why the new lines could not be
        written, or is ""."""
        if not self._encrypted:
            return {"error": "an insecure run has no invite: whoever reaches a peer may join"}
        async with self._answering:
            return await self._reinvited(asked)

    async def _reinvited(self, asked: dict[str, Any]) -> dict[str, Any]:
        if not self._members and not asked["revoke"]:  # no line is known yet, and no peer to be the invite's contact
            return {"error": "its peers are not all up yet, and its invite stays as it is: try again in a moment"}
        invite = Invite.to(self._members[0]["id"]) if asked["new"] else None
        invitation = None if invite is None else invitation_of(invite.guest.public, asked["uses"], asked["span"])
        changes = asked["new"] or asked["revoke"]
        told = await self._asks(question(changes, invitation))
        if "error" in told:
            return told
        if changes:
            self._invite = invite
            told["unwritten"] = self._written()
        elif self._invite is None or told["guest"] != self._invite.guest.public:
            return {"error": f"it has no invite that is known here: make one with samovar invite {self._folder} --new"}
        return {**told, "line": next(iter(self.lines), "")}


def ways_through(
    session: Session, task: Path, invite: str | None, *, say: Callable[[str], object], in_python: bool = False
) -> WaysIn | None:
    """The join lines of a run that this machine's peer has joined with `task`, which lead through that peer and the
    other members. They are written again whenever these have changed; where that fails, `say` is called with the
    reason. `invite`: the text by which the peer has come; None: it has come by its key, and knows no way for others, so
    that the result is None too unless the run is insecure. `in_python`: as in `WaysIn`."""
    settings = session.settings
    if invite is None and not settings.insecure:
        return None

    def follow(members: list[dict[str, str]]) -> None:
        if unwritten := ways_in.met(members):
            say(unwritten)

    session.on_members = follow
    ways_in = WaysIn(
        task,
        Path(session.orders.folder),
        None if invite is None else Invite.from_text(invite),
        session.reinvited,
        in_python=in_python,
        protocol=settings.protocol.file,
        arguments=settings.arguments,
    )
    return ways_in


def asking(
    *, new: bool = False, revoke: bool = False, uses: int | None = None, span: str | None = None
) -> dict[str, Any]:
    """A request, for `WaysIn.answer`, about the invite of a run. `new`: replace the invite by one that admits `uses`
    keys for the time `span`, e.g. "2h" (None for either: no limit); `revoke`: revoke it; neither: only report it."""
    return {"new": new, "revoke": revoke, "uses": uses, "span": span}
