"""A user's script, run as the main program: an error of this library ends it with one line, as it ends a command."""

from __future__ import annotations

import sys
from types import TracebackType

from ..cli.command_line import fail
from ..cli.notebook import in_notebook
from ..errors import RunFailed, is_plain, one_line, place_in_main

_MARK = "_of_samovar"
"""The attribute of the hook by which it is known."""


def is_script() -> bool:
    """Whether this process runs a script, and is no notebook and no session in which a user types."""
    typed = hasattr(sys, "ps1") or sys.flags.interactive or in_notebook()
    return not typed and getattr(sys.modules["__main__"], "__file__", None) is not None


def errors_are_lines() -> None:
    """From now on, if this process runs a script: an uncaught error that a user can mend is printed as one line, with
    the line of the script that made the call; so is RunFailed. Other errors, and those of the script itself, go to the
    former `sys.excepthook`, and keep their traceback. In a notebook and in a session all are exceptions as usual. A
    second call does nothing."""
    before = sys.excepthook
    if hasattr(before, _MARK) or not is_script():
        return

    def uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if is_plain(error) or isinstance(error, RunFailed):
            line, place = one_line(error).removeprefix("RunFailed: "), place_in_main(error)
            fail(line if not place or line.startswith(place) else f"{place}: {line}")
        else:
            before(kind, error, trace)

    setattr(uncaught, _MARK, True)
    sys.excepthook = uncaught
