"""Hello: a newcomer asks for the run's name and settings before it joins."""

from __future__ import annotations

from dataclasses import dataclass

from ..channel import Channel, Envelope
from ..endpoint import Endpoint
from ..transport import PeerId
from ..wire.frames import message

_HELLO = "hello"
"""The name of the channel, the same whatever conversation a run has."""


@message("hello")
@dataclass(frozen=True, slots=True)
class AskRun:
    """Asks a peer for the run that it is in."""

    ask: int


@message("hello")
@dataclass(frozen=True, slots=True)
class RunIs:
    """The answer to AskRun: the run's name and, as JSON, the settings that all its peers share."""

    ask: int
    run: str
    settings: str


class Greeter:
    """From its construction on, answers every AskRun that reaches `endpoint` with the run's name `run` and its shared
    `settings` as JSON (RunIs). A guest (a newcomer that uses an invite's key) gets no answer: the endpoint takes only
    the request to admit its own key from it (`members.invites`), and counts any other message as a fault."""

    def __init__(self, endpoint: Endpoint, *, run: str, settings: str) -> None:
        self._channel, self._run, self._settings = Channel(endpoint, _HELLO), run, settings
        self._channel.on(AskRun, self._tell_run)

    def _tell_run(self, envelope: Envelope) -> None:
        self._channel.post(envelope.sender, RunIs(envelope.message.ask, self._run, self._settings))


async def ask_run(endpoint: Endpoint, contact: PeerId) -> RunIs:
    """Ask `contact` for the name and settings of the run that it is in. The endpoint must know the contact's address.
    There is no limit in time. Raises PeerLost when the contact is lost or refuses."""
    answer = await Channel(endpoint, _HELLO).ask(contact, AskRun, answers=(RunIs,))
    run: RunIs = answer.message
    return run
