"""Questions whose asker does not wait: a callback gets the answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .envelope import Envelope
from .lost import PeerLost

Told = Callable[[Envelope | PeerLost], None]
"""Called with the answer to a question, or with the reason why there is none."""


class Asking:
    """An open question. `told` is called once, with the answer or with PeerLost, unless `cancel` withdraws the question
    before. `Reception` uses it in place of a future."""

    __slots__ = ("_told", "forget", "sending")

    def __init__(self, told: Told) -> None:
        self._told: Told | None = told
        self.forget: Callable[[], object] = lambda: None
        """Takes the question off the list of those whose answers are awaited."""
        self.sending: asyncio.Future[None] | None = None
        """Done when the question is sent; None: it is."""

    def done(self) -> bool:
        """Whether `told` has been called, or the question withdrawn."""
        return self._told is None

    def set_result(self, answer: Envelope) -> None:
        """Call `told` with the answer now, unless the question is done."""
        if (told := self._end()) is not None:
            told(answer)

    def set_exception(self, error: PeerLost) -> None:
        """Have `told` called with the error in the loop's next iteration, unless the question is done."""
        if (told := self._end()) is not None:
            asyncio.get_running_loop().call_soon(told, error)

    def sent(self, sending: asyncio.Future[None]) -> None:
        """Note that `sending` is done: if it failed with PeerLost, the question ends with that error."""
        if not sending.cancelled() and isinstance(error := sending.exception(), PeerLost):
            self.set_exception(error)

    def cancel(self) -> None:
        """Withdraw the question: it is done now, and `told` is not called any more. If the question has not been sent
        yet, it is not sent."""
        self._end()
        if self.sending is not None:
            self.sending.cancel()

    def _end(self) -> Told | None:
        told, self._told = self._told, None
        self.forget()
        return told
