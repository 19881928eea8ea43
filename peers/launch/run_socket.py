"""The Unix socket of a running run, by which a user sends requests to the process that began or joined it on this
machine: a launcher, or a peer that founded it alone or joined it.

The socket is a file in the run's folder that only its owner can read and write. Each request and each answer is one
line of JSON.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from .control import LINE_BYTES_MAX

SOCKET_FILE = "control.sock"
Answer = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class NoAnswer(ValueError):
    """No process answers for a run. The text is one line for the user."""


@contextlib.asynccontextmanager
async def answered(folder: Path, answer: Answer, say: Callable[[str], None]) -> AsyncIterator[None]:
    """A context in which `answer` serves requests for the run in `folder`. If no socket can be made, `say` is called
    with one line that says so, and no requests are served."""
    try:
        server = await serve(folder, answer)
    except OSError as error:
        say(f"{folder / SOCKET_FILE}: {error.strerror}: the run's invite cannot be changed while it goes on")
        yield
        return
    try:
        yield
    finally:
        server.close()
        with contextlib.suppress(OSError):
            (folder / SOCKET_FILE).unlink()


async def serve(folder: Path, answer: Answer) -> asyncio.Server:
    """Serve requests for the run in `folder` by `answer`, until the caller closes the returned server. Raises OSError
    when no socket can be made."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short(folder) as short:
            (folder / SOCKET_FILE).unlink(missing_ok=True)  # left by a run that was killed
            listening.bind(f"{short}/{SOCKET_FILE}")
        (folder / SOCKET_FILE).chmod(0o600)  # nobody can connect before it listens
        return await asyncio.start_unix_server(_answering(answer), sock=listening, limit=LINE_BYTES_MAX)
    except BaseException:
        listening.close()
        raise


def _answering(answer: Answer) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ValueError):  # the client has gone, or sent no request
            asked = json.loads(await reader.readline())
            writer.write(json.dumps(await answer(asked)).encode() + b"\n")
            await writer.drain()
        writer.close()

    return take


def ask(folder: Path, asked: dict[str, Any], *, within_s: float) -> dict[str, Any]:
    """Send the request `asked` to the process that began the run in `folder`; returns its answer. Raises NoAnswer, also
    when none comes for `within_s` seconds."""
    nobody = f"{folder}: no run goes on there; this command works where a run was begun, or joined by an invite"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as calling:
        calling.settimeout(within_s)
        try:
            with _short(folder) as short:
                calling.connect(f"{short}/{SOCKET_FILE}")
            calling.sendall(json.dumps(asked).encode() + b"\n")
            with calling.makefile("rb") as answers:
                line = answers.readline(LINE_BYTES_MAX)
        except PermissionError:
            raise NoAnswer(f"{folder}: only the user who began or joined this run may change its invite") from None
        except TimeoutError:
            raise NoAnswer(f"{folder}: its launcher has not answered for {within_s:g} s; is it stopped?") from None
        except OSError:
            raise NoAnswer(nobody) from None
    if not line.endswith(b"\n"):
        raise NoAnswer(f"{folder}: the run ended before it answered")
    answer: dict[str, Any] = json.loads(line)
    return answer


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """A short path to `folder`, because a socket's path has at most about a hundred characters."""
    held = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        short = f"/proc/self/fd/{held}"
        yield short if os.path.isdir(short) else str(folder)
    finally:
        os.close(held)
