"""Launch: spawn local peer processes, bring them together, collect what they tell, and stop them all come what may."""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .control import LEAVE_S, Control, Orders
from .orders import log_path
from .settings import Settings
from .spawn import Process, Spawner, SpawnError

GRACE_S = LEAVE_S + 1.0
"""How long peers may take to write their checkpoint and leave before they are killed."""


class LaunchError(Exception):
    """A peer could not do its work. One line, for the user."""


@dataclass(slots=True)
class Spawned:
    """A peer process. `ended` is what it told last: finished, accuracy; `failure`, why it could not do its work."""

    orders: Orders
    process: Process | None = None
    control: Control | None = None
    member: dict[str, str] | None = None
    ended: dict[str, Any] | None = None
    exit_code: int | None = None
    exited_s: float = 0.0
    """When, after all had come together."""
    failure: str = ""
    error: str = ""
    """The same as a line for the user, who is told which peer it is."""
    ready: asyncio.Event = field(default_factory=asyncio.Event)


class Launch:
    """All peer processes of one run on this machine. `record` gets each record as JSON text."""

    def __init__(self, all_orders: list[Orders], command: list[str] | None, record: Callable[[str], None]) -> None:
        self.peers = [Spawned(orders) for orders in all_orders]
        self._spawner = Spawner(command)
        self._record = record
        self._over: asyncio.Future[str] | None = None
        """What could not be done; "" when all have ended."""
        self._stopping = False
        self.going = False
        """Whether a round is over: from then on the run goes on without a peer that fails."""
        self._ending: asyncio.TimerHandle | None = None
        self._met_s = math.inf
        """When all peers had come up, by the loop's clock."""

    @property
    def met(self) -> bool:
        """Whether all peers have come up, so that there is something to tell."""
        return self._met_s < math.inf

    async def run(self, stop: asyncio.Event, met: Callable[[list[dict[str, str]]], None]) -> None:
        """Run to the end; `met` hears where the peers are. Raises LaunchError when a peer says it cannot."""
        self._over = over = asyncio.get_running_loop().create_future()
        watching: list[asyncio.Task[None]] = []
        stopped = asyncio.create_task(self._stop_when(stop))
        try:
            for peer in self.peers:
                await self._spawn(peer)
                if self._stopping:
                    return
            watching = [asyncio.create_task(self._watch(peer)) for peer in self.peers]
            asyncio.gather(*watching).add_done_callback(self._all_ended)
            opening = asyncio.create_task(self._bring_together(met))
            error = await over
            opening.cancel()
            if self._ending is not None:
                self._ending.cancel()
            if error:
                raise LaunchError(error)
            if not self._stopping and not any(peer.ended for peer in self.peers):
                told = next((peer.error for peer in self.peers if peer.error), "")
                raise LaunchError(self._spawner.failure or told or self._deaths())
        except SpawnError as error:
            if not self._stopping:
                raise LaunchError(str(error)) from None
        finally:
            stopped.cancel()
            await self._stop_all()
            await asyncio.gather(*watching, return_exceptions=True)
            for peer in self.peers:
                if peer.control is not None:
                    await peer.control.close()
            await self._spawner.close()

    async def _spawn(self, peer: Spawned) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                peer.process = await self._spawner.spawn(theirs, log_path(Path(peer.orders.folder), peer.orders.name))
            except SpawnError:
                ours.close()
                raise
        peer.control = await Control.over(ours)
        peer.control.tell("orders", asdict(peer.orders))

    async def _watch(self, peer: Spawned) -> None:
        assert peer.process is not None
        assert peer.control is not None
        while True:
            kind, content = await peer.control.hear()
            if kind == "closed":
                break
            if kind == "ready":
                peer.member = content
                peer.ready.set()
            elif kind == "record":
                self.going = self.going or '"kind":"round"' in content
                self._record(content)
            elif kind == "ended":
                peer.ended = content
                self._await_stragglers(peer)
            elif kind == "error":
                self._failed(peer, content, f"peer {peer.orders.name}: {content}")
            elif kind == "error for all":
                self._end(f"peer {peer.orders.name}: {content}")
        peer.exit_code = await peer.process.wait()
        peer.exited_s = max(0.0, asyncio.get_running_loop().time() - self._met_s)
        peer.ready.set()
        self._tell_of_end(peer)
        gathered = all(other.member for other in self.peers)
        if (peer.exit_code > 0 or not gathered) and not peer.error:
            death = self._death(peer)
            self._failed(peer, death, f"peer {peer.orders.name} {death}")

    def _tell_of_end(self, peer: Spawned) -> None:
        """Those who are left need not wait until its silence tells."""
        if peer.exit_code and peer.member is not None:
            gone = {"id": peer.member["id"], "why": f"its process {self._death(peer)}"}
            for other in self.peers:
                if other.control is not None and other is not peer:
                    other.control.tell("gone", gone)

    def _failed(self, peer: Spawned, failure: str, error: str) -> None:
        """Before the first round all need each other; later the others go on, and tell of it as of any loss."""
        peer.failure, peer.error = failure, error
        if not self.going and not self._stopping:
            self._end(error)

    def _await_stragglers(self, first: Spawned) -> None:
        """The run is over: who still stands still has its patience to come to its end, and is not waited for longer."""
        if self._ending is None and first.ended and first.ended["finished"]:
            wait_s = Settings.from_json(first.orders.settings).patience_s + GRACE_S
            self._ending = asyncio.get_running_loop().call_later(wait_s, self._signal, signal.SIGKILL)

    def _all_ended(self, watched: asyncio.Future[list[None]]) -> None:
        fault = None if watched.cancelled() else watched.exception()
        if fault is not None and self._over is not None and not self._over.done():
            self._over.set_exception(fault)
        self._end("")

    def _end(self, error: str) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(error)

    async def _bring_together(self, met: Callable[[list[dict[str, str]]], None]) -> None:
        founder = next(peer for peer in self.peers if peer.orders.founder)
        await founder.ready.wait()
        for peer in self.peers:
            await peer.ready.wait()
            if peer is not founder and peer.control is not None:
                peer.control.tell("contact", founder.member)
        if founder.member is not None:
            self._met_s = asyncio.get_running_loop().time()
            met([peer.member for peer in self.peers if peer.member is not None])

    async def _stop_when(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self._stopping = True
        self._spawner.stop()
        for peer in self.peers:
            if peer.member is None and peer.process is not None and peer.process.returncode is None:
                peer.process.kill()  # it has not come up, so there is nothing to keep
            elif peer.control is not None:
                peer.control.tell("stop")
        await asyncio.sleep(GRACE_S)
        self._signal(signal.SIGKILL)

    async def _stop_all(self) -> None:
        self._stopping = True
        alive = [peer for peer in self.peers if peer.process is not None and peer.process.returncode is None]
        for peer in alive:
            if peer.control is not None:
                peer.control.tell("stop")
        try:
            async with asyncio.timeout(GRACE_S):
                for peer in alive:
                    if peer.process is not None:
                        await peer.process.wait()
        except TimeoutError:
            self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        for peer in self.peers:
            if peer.process is not None and peer.process.returncode is None:
                peer.process.send_signal(number)

    def _deaths(self) -> str:
        return "; ".join(f"peer {peer.orders.name} {self._death(peer)}" for peer in self.peers)

    @staticmethod
    def _death(peer: Spawned) -> str:
        code, log = peer.exit_code or 0, log_path(Path(peer.orders.folder), peer.orders.name)
        if code < 0:
            return f"was killed by signal {-code}"
        if code == 0:
            return f"ended before it took part, see {log}"
        return f"exited with {code}: {_last_line(log)}; see {log}"


def _last_line(log: Path) -> str:
    """What a process said last: of a traceback, the error."""
    text = log.read_bytes()[-4096:].decode("utf-8", "replace")
    lines = [" ".join(line.split()) for line in text.splitlines() if line.strip()]
    return f"{lines[-1]:.200}" if lines else "it said nothing"


def script_command(script: Path, arguments: tuple[str, ...]) -> list[str]:
    """How to spawn one peer of a training script that calls `samovar.join()`."""
    return [sys.executable, str(script), *arguments]
