"""The launcher of a run's local peer processes. It spawns them, introduces them to each other, collects their messages,
and stops them all however the run ends.

Until the end of the first exchange there is no training to lose. A process that is killed before that is restarted with
its key and folder, and so is every process that cannot continue without it. If a process ends later, the other peers
continue without it, and it is recorded as lost.
"""

from __future__ import annotations

import asyncio
import math
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ...protocols.members.invite_change import REINVITE_S
from ..errors import RunFailed
from ..records.records import ExchangeRecord, Record, read_record
from ..run_settings.settings import Settings
from .control import LEAVE_S, Control, Orders
from .failures import REFUSALS
from .spawn import ForkServerKilled, Spawner, SpawnError
from .spawned import Spawned, why_none_is_done
from .spec import log_path
from .stop_request import StopRequest

GRACE_S = LEAVE_S + 1.0
"""Seconds that peers may take to leave before they are killed."""
KEEP_S = 600.0
"""Seconds that a peer may take to write a checkpoint before it is killed. Where the user has stopped the run, also
those that a process may take to end after its peer has left: a script may save what it wants then."""
_LOOK_EVERY_S = 0.02
_LIVES_MAX = 4
"""The greatest number of times that a peer is started before the first exchange is over."""


class Launch:
    """All peer processes of one run on this machine. `command`: the command of a script's peer; None: peers of a task.
    `settings`: the run's settings. `record` is called with each record of a peer. `ends_together`: the run ends for all
    peers at once (`Registered`). `gathered` is called, until the run begins, with the number of its members that train,
    also of those on other machines."""

    def __init__(
        self,
        all_orders: list[Orders],
        settings: Settings,
        command: list[str] | None,
        record: Callable[[Record], None],
        *,
        ends_together: bool = True,
        gathered: Callable[[int], None] = lambda members: None,
    ) -> None:
        self.peers = [Spawned(orders, settings.memory_limit) for orders in all_orders]
        self._patience_s = settings.patience_s
        self._spawner = Spawner(command)
        self._record, self._ends_together, self._tell_gathered = record, ends_together, gathered
        self._tell_met: Callable[[list[dict[str, str]]], None] = lambda members: None
        self._over: asyncio.Future[Exception | None] | None = None
        """Done when the run is over: with the error that ended it, or None when all peers have ended."""
        self._stopping = False
        self.going = False
        """Whether an exchange is over. From then on the run continues without a peer that fails."""
        self._ending: asyncio.TimerHandle | None = None
        self._met_s = math.inf
        """The time at which all peers were up, on the event loop's clock."""

    @property
    def met(self) -> bool:
        """Whether all peers have been up, so that the run has records from which to make a result."""
        return self._met_s < math.inf

    async def run(self, stop: StopRequest, met: Callable[[list[dict[str, str]]], None]) -> None:
        """Run the peers until all have ended, or until `stop` is set; then stop those that still run, and kill them
        when `stop` is set again. `met` is called with the peers' ids and addresses when all are up, and again when
        these change. Raises RunFailed when a process cannot be started, a peer fails before the first exchange is over,
        evaluate() fails, or no peer finishes the run, unless `stop` was set before; TaskError and SettingsError when a
        peer refuses the task or the settings before all are up; and any error of `met`. To be called once."""
        self._over, self._tell_met = asyncio.get_running_loop().create_future(), met
        watching: list[asyncio.Task[None]] = []
        stopped = asyncio.create_task(self._stop_when(stop))
        try:
            for peer in self.peers:
                await self._spawn(peer)
                if self._stopping:
                    return
            watching = [asyncio.create_task(self._watch(peer)) for peer in self.peers]
            asyncio.gather(*watching).add_done_callback(self._all_ended)
            error = await self._over
            if self._ending is not None:
                self._ending.cancel()
            if error is not None:
                raise error
            if not self._stopping and not any(peer.done for peer in self.peers):
                raise RunFailed(why_none_is_done(self.peers))
        except SpawnError as error:
            if not self._stopping:
                raise RunFailed(str(error)) from None
        finally:
            stopped.cancel()
            await self._stop_all()
            await asyncio.gather(*watching, return_exceptions=True)
            for peer in self.peers:
                if peer.control is not None:
                    await peer.control.close()
            await self._spawner.close()

    async def reinvite(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Send the request `asked` about the run's invite (`invite_request`) to the first peer that is a member, or, if
        that ends before it answers, to the next. Returns the answer, or an `error` when no peer of this machine is a
        member, or none has answered in time."""
        within_s = 2 * REINVITE_S * self._patience_s
        try:
            async with asyncio.timeout(within_s):
                for peer in self.peers:
                    if peer.inside and (answer := await peer.ask("invite", asked)) is not None:
                        return answer
        except TimeoutError:
            return {"error": f"peer {peer.name} has not answered for {within_s:g} s"}
        return {"error": "no peer of this machine is in the run now: try again when one is"}

    async def _spawn(self, peer: Spawned, orders: Orders | None = None) -> None:
        for tries_left in reversed(range(_LIVES_MAX)):
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    process = await self._spawner.spawn(theirs, log_path(Path(peer.orders.folder), peer.name))
                    break
                except SpawnError as error:
                    ours.close()
                    if self._stopping or not tries_left or not isinstance(error, ForkServerKilled):
                        raise
        peer.begin(process, await Control.over(ours))
        peer.tell("orders", asdict(orders or peer.orders))

    async def _watch(self, peer: Spawned) -> None:
        while True:
            await self._hear(peer)
            assert peer.process is not None
            peer.exit_code = await peer.process.wait()
            peer.exited_s = max(0.0, asyncio.get_running_loop().time() - self._met_s)
            self._tell_of_end(peer)
            if not self._begins_anew(peer):
                break
            await self._spawn(peer, replace(peer.orders, founder=False, restarted=f"its process {peer.death()}"))
            if self._stopping:
                peer.signal(signal.SIGKILL)
        lost = peer.exit_code > 0 or not self.met or (peer.exit_code < 0 and not self.going)
        if lost and not peer.error:
            self._failed(peer, peer.death(), f"peer {peer.name} {peer.death()}")

    async def _hear(self, peer: Spawned) -> None:
        """Handle the messages of a peer until its control line is closed."""
        assert peer.control is not None
        while True:
            kind, content = await peer.control.hear()
            peer.heard_s = asyncio.get_running_loop().time()
            if kind == "closed":
                peer.hung_up()
                await peer.control.close()
                return
            if kind == "ready":
                peer.member = content
                self._introduce(peer)
            elif kind == "inside":
                peer.inside = True
            elif kind == "gathered":
                self._tell_gathered(content)
            elif kind == "answer":
                peer.answered(*content)
            elif kind == "record":
                record = read_record(content)
                self.going = self.going or isinstance(record, ExchangeRecord)
                self._record(record)
            elif kind == "keeping":
                peer.keeping, peer.kept_s = content, asyncio.get_running_loop().time()
            elif kind == "ended":
                peer.ended, peer.kept_s = content, asyncio.get_running_loop().time()
                self._await_stragglers(peer)
            elif kind == "cut off" and self._lacks_a_peer:
                peer.cut_off, peer.failure, peer.error = True, content, f"peer {peer.name}: {content}"
            elif kind in ("error", "cut off", *REFUSALS):
                peer.cut_off = kind == "cut off"
                refusal = None if self.met else REFUSALS.get(kind)
                self._failed(peer, content, f"peer {peer.name}: {content}", refusal or RunFailed)
            elif kind == "error for all":
                self._end(RunFailed(f"peer {peer.name}: {content}"))

    @property
    def _lacks_a_peer(self) -> bool:
        """Whether a peer was killed before the first exchange was over, so that others may be unable to continue."""
        return not self.going and any(peer.lives > 1 or (peer.exit_code or 0) < 0 for peer in self.peers)

    def _begins_anew(self, peer: Spawned) -> bool:
        """Whether to restart this peer. A peer that failed by itself is not restarted: it would only fail again."""
        ended = peer.cut_off or ((peer.exit_code or 0) < 0 and not peer.error)
        over = self._stopping or self.going or self._over is None or self._over.done()
        return ended and not over and peer.lives < _LIVES_MAX

    def _introduce(self, came: Spawned) -> None:
        """Tell `came`, which is up now, the peer to join through: a member of the run, else the founder. A restarted
        founder founds the run anew if there is no member."""
        founder = next(peer for peer in self.peers if peer.orders.founder)
        host = next((peer for peer in self.peers if peer.inside and peer is not came), None)
        if came is founder:
            if came.lives > 1:
                came.tell("contact", host and host.member)
            for peer in self.peers:
                if peer.member is not None and not peer.inside and peer is not came:
                    peer.tell("contact", came.member)
        elif (contact := host or founder).member is not None:
            came.tell("contact", contact.member)
        members = [peer.member for peer in self.peers if peer.member is not None]
        if len(members) == len(self.peers):
            self._met_s = asyncio.get_running_loop().time()
            self._tell_met(members)

    def _tell_of_end(self, peer: Spawned) -> None:
        """Tell the other peers that the process of `peer` has ended by a failure, so that they need not wait for their
        failure timeout."""
        if peer.exit_code and peer.member is not None:
            gone = {"id": peer.member["id"], "why": f"its process {peer.death()}"}
            for other in self.peers:
                if other is not peer:
                    other.tell("gone", gone)

    def _failed(self, peer: Spawned, failure: str, error: str, kind: type[Exception] = RunFailed) -> None:
        """Handle a peer's failure. Before the end of the first exchange it ends the run, with an error of this `kind`;
        later the other peers continue and record this one as lost."""
        peer.failure, peer.error = failure, error
        if not self.going and not self._stopping:
            self._end(kind(error))

    def _await_stragglers(self, first: Spawned) -> None:
        """If the run has ended for `first`, and ends for all peers at once, kill the peers that still run after the
        patience and the grace time."""
        if self._ends_together and self._ending is None and first.ended and first.ended["finished"]:
            wait_s = self._patience_s + GRACE_S
            self._ending = asyncio.get_running_loop().call_later(wait_s, self._signal, signal.SIGKILL)

    def _all_ended(self, watched: asyncio.Future[list[None]]) -> None:
        fault = None if watched.cancelled() else watched.exception()
        if fault is not None and self._over is not None and not self._over.done():
            self._over.set_exception(fault)
        self._end(None)

    def _end(self, error: Exception | None) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(error)

    async def _stop_when(self, stop: StopRequest) -> None:
        await stop.wait()
        self._stopping = True
        self._spawner.stop()
        for peer in self.peers:
            if peer.member is None:
                peer.signal(signal.SIGKILL)  # it is not up yet, so it has nothing to save
            else:
                peer.tell("stop")
        await self._kill_late(stop)

    async def _stop_all(self) -> None:
        self._stopping = True
        for peer in self.peers:
            peer.tell("stop")
        await self._kill_late()

    async def _kill_late(self, stop: StopRequest | None = None) -> None:
        """Wait for all peers to end, and kill those that still run after `GRACE_S`, or after `KEEP_S` while they write
        a checkpoint. A process whose peer has left has `GRACE_S` from then on to end. `stop`: the user's request, by
        which it has `KEEP_S`, and all are killed when it is made again; None: the user has not stopped the run."""
        clock = asyncio.get_running_loop().time
        began_s, late = clock(), self.peers
        while late := [peer for peer in late if peer.running]:
            for peer in list(late):
                had_s = clock() - max(began_s, peer.kept_s)
                saves = stop is not None and peer.ended is not None
                grace_s = KEEP_S if peer.keeping or saves else GRACE_S
                if had_s > grace_s or (stop is not None and stop.at_once):
                    peer.grace_s = min(grace_s, round(had_s, 1))
                    peer.signal(signal.SIGKILL)
                    late.remove(peer)
            await asyncio.sleep(_LOOK_EVERY_S)

    def _signal(self, number: signal.Signals) -> None:
        for peer in self.peers:
            peer.signal(number)


def script_command(script: Path, arguments: Sequence[str]) -> list[str]:
    """The command that spawns one peer of a training script that calls `samovar.join()`. `arguments`: the script's
    own."""
    return [sys.executable, str(script), *arguments]
