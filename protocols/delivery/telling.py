"""Telling listeners: a fault of one stops neither the others nor the caller, such as the heartbeats."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import ParamSpec

P = ParamSpec("P")


def tell_all(what: str, listeners: Iterable[Callable[P, object]], *said: P.args, **named: P.kwargs) -> None:
    """Call each with that; `what` failed, in words, when one does."""
    for told in listeners:
        try:
            told(*said, **named)
        except Exception as error:
            asyncio.get_running_loop().call_exception_handler({"message": f"{what} failed", "exception": error})
