"""Calling listeners: an exception in one stops neither the others nor the caller, such as the heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")


def tell_all(what: str, listeners: Iterable[Callable[P, object]], *said: P.args, **named: P.kwargs) -> None:
    """Call each listener with the arguments after the first two. An exception of a listener goes to the loop's
    exception handler, with the message "`what` failed"."""
    for told in listeners:
        try:
            told(*said, **named)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler({"message": f"{what} failed", "exception": error})
