"""Questions whose asker does not wait for the answer, but is told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .envelope import Envelope
from .lost import PeerLost

Told = Callable[[Envelope | PeerLost], None]
"""Called with the answer to a question, or with the reason why there is none."""


class Asking:
    """An open question, of which `told` is told once. `Reception` treats it as it does the future of an answer."""

    __slots__ = ("_told", "forget", "sending")

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told
        self.forget: Callable[[], object] = lambda: None
        """Has nobody look for the answer any more."""
        self.sending: asyncio.Future[None] | None = None
        """Done when the question is sent; None: it is."""

    def done(self) -> bool:
        return self._told is None

    def set_result(self, answer: Envelope) -> None:
        if (told := self._end()) is not None:
            told(answer)

    def set_exception(self, error: PeerLost) -> None:
        """The asker is told soon, and not in the midst of what has brought the error."""
        if (told := self._end()) is not None:
            asyncio.get_running_loop().call_soon(told, error)

    def sent(self, sending: asyncio.Future[None]) -> None:
        """`sending` is done."""
        if not sending.cancelled() and isinstance(error := sending.exception(), PeerLost):
            self.set_exception(error)

    def cancel(self) -> None:
        """Withdraw the question, or take no interest in the answer any more: the asker is told nothing."""
        self._end()
        if self.sending is not None:
            self.sending.cancel()

    def _end(self) -> Told | None:
        told, self._told = self._told, None
        self.forget()
        return told
