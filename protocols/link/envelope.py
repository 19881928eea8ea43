"""The envelope in which a message is handed to the conversation that it is for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..transport import PeerId
from ..wire.frames import Buffer


@dataclass(slots=True, eq=False)
class Envelope:
    """A message that arrived, with its sender and channel. The receiver of a DATA message calls `done()` once it has
    consumed the payload."""

    sender: PeerId
    message: Any
    payload: Buffer
    cost: int
    """The message's bytes of credit, as its sender counts them."""
    channel: str = ""
    _give_back: Callable[[int], None] | None = None

    def done(self) -> None:
        """Give this message's credit back to its sender, which may then send as much more. A second call does nothing,
        nor does any for a message that is not of the lane DATA."""
        give_back, self._give_back = self._give_back, None
        if give_back is not None:
            give_back(self.cost)
