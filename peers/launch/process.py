"""A peer process: `samovar train` spawns one for each peer of a task, and `samovar join` runs one in the foreground."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch

from ..checkpoints.best import BestModel, best_path
from ..checkpoints.checkpoint import CheckpointError, Snapshot, load, save
from ..errors import is_plain, one_line
from ..machine.process_memory import keep_freed_memory
from ..machine.threads import threads_for
from ..peer import Peer
from ..records.ends import BY_USER
from ..records.records import Record
from ..run_settings.settings import Settings
from ..task.facts import Facts
from ..task.headline import Headline
from ..task.task import TaskError, check_trainable, load_task
from ..training.compute import ThreadCompute
from ..training.devices import pick_device, take_seat
from ..training.loop import Ended, Training
from ..training.no_model import NoModel
from ..training.origin import whose_checkpoint
from ..training.task_replica import TaskReplica
from ..training.trainer import Trainer
from ..user_code import called_with
from .control import LEAVE_S, Orders
from .failures import tell_failure
from .session import Session, open_for_launcher, orders_of_launcher
from .spec import checkpoint_path


async def run_peer(session: Session, record: Callable[[Record], None]) -> Ended:
    """Train the session's task until the run ends or the session is stopped, and close the endpoint. Returns how the
    training ended. `record` is called with each record. Raises the errors of the task, the conversation and the
    checkpoint."""
    with called_with(Path(session.orders.task), session.settings.arguments):
        return await _run_peer(session, record)


async def _run_peer(session: Session, record: Callable[[Record], None]) -> Ended:
    orders, settings, endpoint = session.orders, session.settings, session.endpoint
    # for this thread, where small sums run; later threads inherit it
    torch.set_num_threads(threads_for(settings.threads, orders.threads))
    compute, peer = ThreadCompute(), None
    try:
        replica, facts, resumed = await compute.run(lambda: _build(session, compute))
        peer = Peer(
            endpoint,
            settings,
            session.place,
            facts,
            steps=settings.steps_max,
            resumed=resumed,
            record=record,
        )
        folder, headline, scales = Path(orders.folder), facts.headline, facts.scales
        del facts, resumed  # they hold whole models
        own = checkpoint_path(folder, orders.name)
        best = None if headline is None else _best_model(session, headline, best_path(folder), own.with_suffix(".best"))
        training = Training(peer, replica, session.stop, _keeper(session, own), best)
        first = orders.founder or session.control is None  # of a launcher's peers only the founder
        if first and isinstance(replica, TaskReplica):
            metrics = await replica.rehearse(peer.stalls)
            settings.own.check_metrics(metrics, "" if headline is None else headline.name, scales)
        session.ready(peer)
        ended = await training.run(session.contact)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(settings.patience_s if ended.finished else LEAVE_S):
                await (endpoint.drain() if ended.finished else peer.conversation.leave(_why_stopped(orders, ended)))
        return ended
    except Exception as error:
        if peer is not None and peer.clock.started:
            peer.tell("error", why=one_line(error))
        raise
    finally:
        if peer is not None:
            peer.close()
        else:
            endpoint.abort()
        compute.close()


def _why_stopped(orders: Orders, ended: Ended) -> str:
    """The reason that a stopped peer gives to the others. Where it is a server it names the exchange from which the run
    can be resumed, as the others cannot go on without servers."""
    saved = f"; {ended.saved} is saved" if orders.role and ended.saved else ""
    return f"{BY_USER}{saved}"


def _best_model(session: Session, headline: Headline, path: Path, own: Path) -> BestModel:
    return BestModel(path, headline.name, headline.better, own, _keeper(session, own))


def _keeper(session: Session, path: Path) -> Callable[[Snapshot], None]:
    """A function that writes a checkpoint to `path`. It is to be called on the compute thread."""
    soon = asyncio.get_running_loop().call_soon_threadsafe

    def keep(snapshot: Snapshot) -> None:
        soon(session.keep, True)
        try:
            save(path, snapshot)
        finally:
            soon(session.keep, False)

    return keep


def _build(session: Session, compute: ThreadCompute) -> tuple[TaskReplica | NoModel, Facts, Snapshot | None]:
    """The session's replica, its facts, and the checkpoint from which it goes on (None: none). A peer with a role, such
    as a server, gets the task's facts and a replica without a model."""
    resumed = _resumed(session.orders)
    try:
        trainer = _build_trainer(session.settings, session)
    except TaskError as error:
        if resumed is not None and (whose := whose_checkpoint(resumed.numbers, Path(session.orders.task))):
            raise CheckpointError(f"the checkpoint is {whose}: {error}") from None
        raise
    if session.orders.role:
        return NoModel(compute), trainer.facts().without_model(), resumed
    if resumed is not None:
        trainer.restore(resumed)
    return TaskReplica(trainer, compute), trainer.facts(), resumed


def _resumed(orders: Orders) -> Snapshot | None:
    """The checkpoint from which the peer goes on; None: it begins anew. The run's clock goes on from the last record of
    any peer, which is later than the checkpoint, so that no event of the resumed run is before one of the stopped."""
    if orders.resume is None:
        return None
    kept = load(Path(orders.resume))
    elapsed_s = max(float(kept.numbers["elapsed_s"]), orders.resumed_s)
    return replace(kept, numbers={**kept.numbers, "elapsed_s": elapsed_s})


def _build_trainer(settings: Settings, session: Session) -> Trainer:
    task = load_task(Path(session.orders.task), settings.arguments, settings.own.asks_of_task())
    check_trainable(task.path, settings.own.scripts_only())
    if not settings.own.takes_rows():
        task = replace(task, rows=None)  # its tables are averaged as all parameters are
    data_shard = session.orders.data_shard
    device = pick_device(settings.device, take_seat(None if session.control is None else data_shard))
    trainer = Trainer(
        task,
        seed=settings.seed,
        data_shard=data_shard,
        data_shards=settings.peers,
        device=device,
        inner=settings.own.optimizer_state(),
        steps=settings.steps_max,
    )
    trainer.copy.resting.wished = settings.edge
    trainer.hooks.setup(session.orders.name, Path(session.orders.folder))
    return trainer


async def _spawned() -> int:
    try:
        control, orders = await orders_of_launcher()
    except ConnectionError as gone:
        print(gone, file=sys.stderr)
        return 1
    session = None
    try:
        session = await open_for_launcher(control, orders)
        caught = _stop_by_signal(session)
        file, record = session.recorder()
        with file:
            ended = await run_peer(session, record)
        session.ended(asdict(ended))
        return -caught[0] if caught else 0
    except Exception as error:
        traceback.print_exc()
        tell_failure(control, orders, error)
        return 2 if is_plain(error) else 1
    finally:
        await (session or control).close()


def _stop_by_signal(session: Session) -> list[int]:
    """Make SIGINT, SIGTERM and SIGHUP to this process stop the peer in good order. Returns a list to which each caught
    signal is appended."""
    caught: list[int] = []

    def catch(number: int) -> None:
        caught.append(number)
        session.stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, catch, number)
    return caught


def main() -> None:
    """Entry point of a spawned peer process. The process then exits, without waiting for the compute thread, which may
    be in a long step: with code 0, 1 or 2, or by the signal that has stopped it."""
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
