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
    """Sent by a peer that got a message on `channel` of a family that it has not registered (`Unopened`), so it takes
    no part in that conversation. It cannot tell whether the message was a question: the receiver of NotOpen ends all of
    its open questions to that peer on the channel."""

    channel: str
