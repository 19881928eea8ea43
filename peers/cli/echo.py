"""The terminal's echo of typed keys, which would write into the live table. It is off while the table is shown."""

from __future__ import annotations

import contextlib
import os
import termios
from typing import Final

from rich.live import Live

_LOCAL: Final = 3
"""The index of the local modes, such as ECHO, in the attributes of a terminal."""


class UnechoedLive(Live):
    """A live display without echo. Keys keep their effects: Ctrl-C stops the run, and the shell gets what was typed."""

    _before: int | None = None
    """The terminal's local modes before `start`; None: they were not changed."""

    def start(self, refresh: bool = False) -> None:
        """Switch the echo off, if the display is on a terminal and this process in its foreground, and begin to
        show."""
        if (terminal := self._own_terminal()) is not None:
            self._before = termios.tcgetattr(terminal)[_LOCAL]
            self._switch(self._before & ~termios.ECHO)
        try:
            super().start(refresh)
        except BaseException:
            self._restore()
            raise

    def stop(self) -> None:
        """End the display, and give the terminal back the echo that it had."""
        try:
            super().stop()
        finally:
            self._restore()

    def _restore(self) -> None:
        before, self._before = self._before, None
        if before is not None:
            self._switch(before)

    def _switch(self, local: int) -> None:
        if (terminal := self._own_terminal()) is None:
            return
        with contextlib.suppress(termios.error):  # it was closed
            attributes = termios.tcgetattr(terminal)
            attributes[_LOCAL] = local
            termios.tcsetattr(terminal, termios.TCSANOW, attributes)

    def _own_terminal(self) -> int | None:
        """The terminal on which the display is shown. None if it is none, or if this process is in the background:
        there the system stops a process that changes a terminal's attributes."""
        try:
            terminal = self.console.file.fileno()
            return terminal if os.tcgetpgrp(terminal) == os.getpgrp() else None
        except (OSError, ValueError):
            return None
