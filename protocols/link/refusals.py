"""The messages of the link that end a question to which there is no answer. They are sent on the link's own channel, as
any peer may make up the name of the question's."""

from __future__ import annotations

from dataclasses import dataclass

from ..wire.frames import message


@message("link")
@dataclass(frozen=True, slots=True)
class Unanswered:
    """Answers the question with the number `ask` when there is no other answer. `why`: the reason, in words."""

    ask: int
    why: str


@message("link")
@dataclass(frozen=True, slots=True)
class NotOpen:
    """Answers a message on `channel` of a family that the sender does not know (`Unopened`). It has not read whether
    that was a question: none that the receiver has asked it on this channel gets an answer."""

    channel: str
