"""A peer process: `samovar train` spawns one for each peer of a task, and `samovar join` runs one in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import torch

from ..checkpoints.checkpoint import Snapshot, load, save
from ..conversations.policies import first_state
from ..errors import is_plain, one_line
from ..machine.process_memory import keep_freed_memory
from ..peer import Identity, Peer
from ..records.records import Record
from ..settings.settings import Settings
from ..task.task import check_average, load_task
from ..training.compute import ThreadCompute
from ..training.devices import pick_device, take_seat
from ..training.loop import Ended, resume
from ..training.overlap import training_of
from ..training.trainer import Trainer
from .control import LEAVE_S
from .session import Opening, open_for_launcher, orders_of_launcher, tell_failure
from .spec import checkpoint_path


async def run_peer(opening: Opening, record: Callable[[Record], None]) -> Ended:
    """Train the task of the orders to its end, or until told to stop. Closes the endpoint."""
    orders, settings, endpoint = opening.orders, opening.settings, opening.endpoint
    torch.set_num_threads(orders.threads)  # for this thread, where small sums run; later threads inherit it
    compute, peer = ThreadCompute(), None
    try:
        trainer = await compute.run(lambda: _build_trainer(settings, opening))
        state, elapsed_s = first_state(settings, trainer.vector), 0.0
        residual = None
        if orders.resume is not None:
            source = Path(orders.resume)
            state, elapsed_s, residual = await compute.run(lambda: resume(load(source), trainer))
        peer = Peer(
            endpoint,
            settings,
            Identity(orders.name, orders.part, settings.link or "", settings.site or ""),
            run=orders.run,
            layout=trainer.layout,
            agreement=await compute.run(trainer.agreement),
            state=state,
            parameters=trainer.parameters,
            residual=residual,
            invitation=opening.invitation,
            elapsed_s=elapsed_s,
            steps=settings.steps,
            record=record,
            store=opening.store,
        )
        training = training_of(peer, trainer, compute, opening.stop, _keeper(opening))
        if orders.founder or opening.control is None:  # of a launcher's peers only the founder
            await training.rehearse()
        opening.ready(peer)
        ended = await training.run(opening.contact)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.patience_s if ended.finished else LEAVE_S):
                await (endpoint.drain() if ended.finished else peer.leave("stopped by its user"))
        return ended
    except Exception as error:
        if peer is not None and peer.started:
            peer.tell("error", why=one_line(error))
        raise
    finally:
        if peer is not None:
            peer.close()
        else:
            endpoint.abort()
        compute.close()


def _keeper(opening: Opening) -> Callable[[Snapshot], None]:
    """The function that writes a checkpoint, to be called on the compute thread."""
    path = checkpoint_path(Path(opening.orders.folder), opening.orders.name)
    soon = asyncio.get_running_loop().call_soon_threadsafe

    def keep(snapshot: Snapshot) -> None:
        soon(opening.keep, True)
        try:
            save(path, snapshot)
        finally:
            soon(opening.keep, False)

    return keep


def _build_trainer(settings: Settings, opening: Opening) -> Trainer:
    task = load_task(Path(opening.orders.task))
    check_average(settings.average, task.path)
    part = opening.orders.part
    device = pick_device(settings.device, take_seat(None if opening.control is None else part))
    return Trainer(task, seed=settings.seed, part=part, parts=settings.peers, device=device, inner=settings.inner)


async def _spawned() -> int:
    try:
        control, orders = await orders_of_launcher()
    except ConnectionError as gone:
        print(gone, file=sys.stderr)
        return 1
    opening = None
    try:
        opening = await open_for_launcher(control, orders)
        caught = _stop_by_signal(opening)
        file, record = opening.recorder()
        with file:
            ended = await run_peer(opening, record)
        opening.ended(asdict(ended))
        return -caught[0] if caught else 0
    except Exception as error:
        traceback.print_exc()
        tell_failure(control, orders, error)
        return 2 if is_plain(error) else 1
    finally:
        await (opening or control).close()


def _stop_by_signal(opening: Opening) -> list[int]:
    """Handle SIGINT, SIGTERM and SIGHUP to this process alone by leaving in good order. Returns the list of signals
    caught so far."""
    caught: list[int] = []

    def catch(number: int) -> None:
        caught.append(number)
        opening.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, catch, number)
    return caught


def main() -> None:
    """Entry point of a spawned peer. Exits without waiting for a compute thread that may be in a long step."""
    keep_freed_memory()
    code = asyncio.run(_spawned())
    sys.stdout.flush()
    sys.stderr.flush()
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main()
