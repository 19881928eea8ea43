"""Greeting: what a newcomer learns before it joins, and how a guest's own key is let in.

An invite holds the secret of the run's guest key. With it a newcomer may do one thing: have its own key admitted. All
members are told, and from then on the newcomer is known by its own key. Many may come with one invite at the same
moment; their connections are told apart. Whoever knows an invite may join: treat it as a password.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .delivery.link import PeerLost
from .endpoint import Endpoint, Envelope
from .transport import PeerId, is_guest, key_of
from .wire import message

_GUESTS_MAX, _KEY_LETTERS_MAX = 10_000, 64
"""What one member lets in for the guest: an invite that leaked must not fill up its memory."""


@message()
@dataclass(frozen=True, slots=True)
class AskRun:
    ask: int


@message()
@dataclass(frozen=True, slots=True)
class RunIs:
    """The run's name and, as JSON, the settings that all its peers share."""

    ask: int
    run: str
    settings: str


@message()
@dataclass(frozen=True, slots=True)
class Admit:
    """A guest asks for `key` to be admitted."""

    ask: int
    key: str


@message()
@dataclass(frozen=True, slots=True)
class Admitted:
    """`why`: why not, if it was not."""

    ask: int
    why: str


@message()
@dataclass(frozen=True, slots=True)
class Vouch:
    """Told to members: `key` was admitted."""

    key: str


class Greeter:
    """Answers newcomers. `guest`: the key that may have others admitted; `members`: who hears of it."""

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        run: str,
        settings: str,
        guest: PeerId | None,
        members: Callable[[], Iterable[PeerId]],
    ) -> None:
        self._endpoint, self._run, self._settings, self._guest, self._members = endpoint, run, settings, guest, members
        self._guests: set[PeerId] = set()
        if guest is not None:
            endpoint.admit(guest, guest=Admit)
        endpoint.on(AskRun, self._tell_run)
        endpoint.on(Admit, self._admit)
        endpoint.on(Vouch, self._take_vouch)

    def _tell_run(self, envelope: Envelope) -> None:
        self._endpoint.post(envelope.sender, RunIs(envelope.message.ask, self._run, self._settings))

    def _admit(self, envelope: Envelope) -> None:
        if not is_guest(envelope.sender) or key_of(envelope.sender) != self._guest:
            return
        key = envelope.message.key
        if not self._has_room(key):
            why = f"it has let in {len(self._guests)} keys for this invite and takes no more"
            self._endpoint.post(envelope.sender, Admitted(envelope.message.ask, why))
            return
        self._guests.add(key)
        self._endpoint.admit(key)
        for member in self._members():
            if member != self._endpoint.id:
                self._endpoint.post(member, Vouch(key))
        self._endpoint.post(envelope.sender, Admitted(envelope.message.ask, ""))

    def _has_room(self, key: str) -> bool:
        return len(key) <= _KEY_LETTERS_MAX and (len(self._guests) < _GUESTS_MAX or key in self._guests)

    def _take_vouch(self, envelope: Envelope) -> None:
        if envelope.sender in self._members() and self._has_room(key := envelope.message.key):
            self._guests.add(key)
            self._endpoint.admit(key)


async def ask_run(endpoint: Endpoint, contact: PeerId) -> RunIs:
    """The run that `contact` is in. Raises PeerLost."""
    answer = await endpoint.ask(contact, AskRun)
    run: RunIs = answer.message
    return run


async def ask_admission(endpoint: Endpoint, contact: PeerId, key: PeerId) -> None:
    """As guest, have `key` admitted. Raises PeerLost."""
    answer = await endpoint.ask(contact, lambda ask: Admit(ask, key))
    if answer.message.why:
        raise PeerLost(contact, answer.message.why)
