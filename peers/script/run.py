"""The object that `samovar.join` returns: a user's own PyTorch loop as a peer of a run.

The peer's network code runs on an event loop in a thread of its own. `wrap` registers hooks on the optimizer, which
stays the same object. After every `period` steps the hook averages the model with the other peers. With `overlap` the
script's loop continues at once, and the hook waits for that average one period later.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar

import torch
from torch import nn

from ..launch.session import Session
from ..peer import Peer
from ..records.ends import BY_USER, SCRIPT_DONE
from ..records.metrics import Measured
from ..records.records import ExchangeRecord
from ..records.run import peer_file, read_records
from ..records.units import count_text
from ..settings.in_python import in_python
from ..task.facts import Facts
from ..task.gradients import Gradients
from ..training.loop import Ended, Training
from ..training.no_model import NoModel
from ..training.replica import Replica
from .gradient_works import GradientWorks
from .interrupts import heeding, stopped
from .loop_thread import Background
from .replica import ScriptReplica
from .reports import Reports
from .shutdown import part_from, shut_down, why_left

Optimizer = TypeVar("Optimizer", bound=torch.optim.Optimizer)


class Run:
    """This process as a peer of a run. A context manager leaves the run at the block's end: by `leave`, or at once, if
    the block raises. At the interpreter's exit it leaves at once; the local steps since the last round are lost."""

    def __init__(self, background: Background, session: Session, invitation: dict[str, Any] | None) -> None:
        self._background, self._session, self._invitation = background, session, invitation
        self._peer: Peer | None = None
        self._replica: ScriptReplica | None = None
        self._reports = Reports()
        self._training: Future[Ended] | None = None
        self._gradients: Gradients | None = None
        self._hooks = contextlib.ExitStack()
        self._hooks.callback(heeding(session, background, self._stop))
        self._process, self._gone = os.getpid(), False
        atexit.register(self._forgotten)

    @property
    def part(self) -> int:
        """Index of this peer's data shard, from 0 to `parts` - 1; final once `wrap` has returned; 0 for a server.
        Raises ValueError before `wrap` in a run joined by address: the members assign the index."""
        if self._peer is None and self._session.control is None and not self._session.orders.founder:
            raise ValueError("run.part is known once run.wrap has returned: the run's members say it")
        if self._session.orders.role:
            return 0
        return self._session.orders.data_shard if self._peer is None else self._peer.membership.me.attributes.data_shard

    @property
    def parts(self) -> int:
        """The number of data shards: that of the peers that founded the run, without servers."""
        return self._session.settings.peers

    @property
    def peers(self) -> int:
        """The number of peers that train together now, servers not counted; 1 before `wrap`."""
        members = () if self._peer is None else self._peer.membership.view.members
        return max(1, sum(not one.attributes.role for one in members))

    @property
    def period(self) -> int:
        """The number of step() calls that this peer makes in the present round; 0 before `wrap`."""
        return 0 if self._replica is None else self._replica.period

    @property
    def folder(self) -> Path:
        """The run folder, to which this peer writes its records."""
        return Path(self._session.orders.folder)

    @property
    def history(self) -> list[ExchangeRecord]:
        """This peer's records so far, one for each round (or other exchange), read from its file in `folder`. Raises
        ValueError when the file is damaged."""
        file = peer_file(self.folder, self._session.orders.name)
        records = read_records(file) if file.exists() else []  # it is made by `wrap`
        return [record for record in records if isinstance(record, ExchangeRecord)]

    @property
    def invitation(self) -> dict[str, Any] | None:
        """Arguments with which another process joins this run: ``samovar.join(**invitation)``. None under `samovar
        train`, which prints how to join."""
        return self._invitation

    def wrap(self, optimizer: Optimizer, model: nn.Module, metrics: Mapping[str, str] | None = None) -> Optimizer:
        """Average `model` with the other peers after every period of ``optimizer.step()`` calls. With
        ``average="gradients"`` average its gradients instead, while ``backward()`` computes them. `metrics`: scales of
        what `run.metrics` will report, by name, as the METRICS of a task: ``{"perplexity": "lower"}``; None: any may be
        reported.

        Waits until enough peers have gathered, loads the run's weights into `model`, and returns `optimizer` itself. In
        a server's process the script ends here, by SystemExit, when the run is over. Raises JoinRefused when the run's
        model has another layout; ValueError for a second call, for a model or optimizer that cannot be averaged, and
        for metrics that are no scales; Stopped when the user stops the run; and the error that ends the training with
        the other peers. From now on ``optimizer.step()``, or ``backward()`` where gradients are averaged, raises these
        last two, too. A peer to which any of them is raised has left the run. A step whose ``optimizer.step()`` raises
        Stopped has been taken; one whose ``backward()`` raises it has not.
        """
        if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, nn.Module):
            given = f"{type(optimizer).__name__}, {type(model).__name__}"
            raise ValueError(f"run.wrap takes the optimizer, then the model; it was given: {given}")
        if self._replica is not None or self._gone:
            raise ValueError("a run averages one model, once: put all your networks into one nn.Module, or join again")
        self._reports.begin(metrics)
        with self._ending_with_it():
            self._begin(optimizer, model)
        return optimizer

    def loss(self, loss: float | torch.Tensor) -> None:
        """Report the training loss of a batch, a number or a scalar tensor, for the records and an adaptive period. In
        place of a round's mean loss that is not finite, as under a GradScaler, the last finite one is reported."""
        self._reports.losses.add(loss)

    def samples(self, count: float) -> None:
        """Set the number of samples in a batch, by which this peer's gradients are weighted from now on; 1 before the
        first call. Models are weighted by local steps instead. Raises ValueError unless it is positive and finite."""
        self._reports.weigh(count)

    def metrics(self, measured: Measured) -> None:
        """Report metrics of the model: a number, which is the one declared metric or else an accuracy, or numbers by
        name, as a task's `evaluate` returns them. The next exchange's record has those of the last call before it, the
        result those that none follows. Raises ValueError for undeclared ones, before `wrap`, and after `leave`."""
        self._reports.measure(measured, 0 if self._replica is None else self._replica.steps)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """A context for gradient accumulation. Inside it, ``backward()`` adds to the ``.grad`` of this peer's
        parameters and sends nothing. The first ``backward()`` after it averages the accumulated gradients over the
        peers. Raises ValueError before `wrap`, and without ``average="gradients"``."""
        if (gradients := self._gradients) is None:
            raise ValueError('run.no_sync is for gradients: samovar.join(average="gradients"), then run.wrap first')
        before, gradients.accumulating = gradients.accumulating, True
        try:
            yield
        finally:
            gradients.accumulating = before

    def leave(self, measure: Callable[[], Measured] | None = None) -> None:
        """Bring the local steps since the last round into one more average, and leave the run. The other peers
        continue. `measure`: returns metrics of the model that this gives, as `metrics` takes them, for the run's
        result; no peer waits for it. A second call does nothing. Raises the errors of training and of `measure`."""
        if self._replica is not None and not self._gone and not self._session.stop.flag:
            with self._ending_with_it():
                self._replica.leave()
                self._wait(self._replica)
                if measure is not None and (peer := self._peer) is not None:
                    self._background.call(part_from(self._session, peer, SCRIPT_DONE, done=True))
                    self._reports.measure(measure(), 0, last=True)
        self._reports.end()
        self._go(SCRIPT_DONE, done=not self._session.stop.flag)

    def __repr__(self) -> str:
        if self._gone:
            now = "left"
        elif self._peer is None:
            now = "not wrapped yet"
        else:
            now = f"part {self.part} of {self.parts}, {count_text(self.peers, 'peer')}, period {self.period}"
        return f"<samovar.Run {self._session.orders.name!r}: {now}, in {self.folder}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.leave()
        else:
            self._fail(error)

    def _begin(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> None:
        """Join the training with the other peers, load the run's weights, and register the hooks."""
        settings = self._session.settings
        synchronous, inner = settings.own.brings_gradients(), settings.own.optimizer_state()
        losses = self._reports.losses
        replica = self._replica = ScriptReplica(optimizer, model, losses, gradients=synchronous, inner=inner)
        if self._session.orders.role:
            self._serve(replica.facts().without_model())
        self._training = self._background.start(self._train(replica, replica.facts(), replica.end))
        self._wait(replica)
        if synchronous:
            wait, guarded = (lambda: self._wait(replica)), self._within_backward
            self._gradients = GradientWorks(model, self._background, replica, self._reports, wait, guarded).gradients
            self._hooks.callback(self._gradients.unhook)
        else:
            self._hooks.callback(optimizer.register_step_pre_hook(lambda *_: replica.before_step()).remove)
            self._hooks.callback(optimizer.register_step_post_hook(lambda *_: self._after_step(replica)).remove)

    def _serve(self, facts: Facts) -> NoReturn:
        """Hold the model for the others until the run is over. The script goes no further."""
        self._training = self._background.start(self._train(NoModel(), facts, lambda: None))
        if not self._training.result().finished:
            self._stop()
        self._go("the run is over", done=True)
        raise SystemExit(0)

    async def _train(self, replica: Replica, facts: Facts, end: Callable[[], None]) -> Ended:
        try:
            session = self._session
            self._file, record = session.recorder()
            noting = self._reports.noting(record)
            self._peer = Peer(session.endpoint, session.settings, session.place, facts, record=noting)
            del facts  # it holds a whole model
            session.ready(self._peer)
            return await Training(self._peer, replica, session.stop).run(session.contact)
        finally:
            end()

    def _wait(self, replica: ScriptReplica) -> None:
        """Wait for the next work that needs the script's own steps. Raises the training's error, and Stopped."""
        assert self._training is not None
        if not replica.wait():
            self._training.result()
            if self._session.stop.flag:
                self._stop()

    def _after_step(self, replica: ScriptReplica) -> None:
        replica.count()
        if self._session.stop.flag:
            self._stop()
        with self._ending_with_it():
            if replica.stepped():
                self._wait(replica)

    @contextlib.contextmanager
    def _ending_with_it(self) -> Iterator[None]:
        """A context whose errors, Ctrl-C too, make this peer leave the run. The script may catch them and train on."""
        try:
            with in_python():
                yield
        except BaseException as error:
            self._fail(error)
            raise

    @contextlib.contextmanager
    def _within_backward(self) -> Iterator[None]:
        with self._ending_with_it():
            yield
        if self._session.stop.flag:
            self._stop()

    def _stop(self) -> NoReturn:
        self._go(BY_USER)
        raise stopped(self._session)

    def _forgotten(self) -> None:
        """Leave the run at the interpreter's exit, when the script ended by an error or without `leave`, so that the
        other peers do not wait for this one."""
        if os.getpid() == self._process:  # a forked child is not the peer
            if self._replica is not None and (steps := self._replica.steps) and not self._gone:
                lost = "1 local step is" if steps == 1 else f"{steps} local steps are"
                self._session.forgot = f"run.leave() was not called: {lost} lost"
                print(f"samovar: {self._session.forgot}", file=sys.stderr)
            self._fail(getattr(sys, "last_value", None))

    def _fail(self, error: BaseException | None) -> None:
        self._go(why_left(error), error=None if isinstance(error, SystemExit | KeyboardInterrupt) else error)

    def _go(self, why: str, *, done: bool = False, error: BaseException | None = None) -> None:
        """Tell the other peers why this one leaves, and end the background thread. `done`: the script is done, and
        neither failed nor was stopped."""
        if not self._gone:
            self._gone = True
            atexit.unregister(self._forgotten)
            self._hooks.close()
            self._background.call(self._end(why, done=done, error=error))
            self._background.close()

    async def _end(self, why: str, *, done: bool, error: BaseException | None) -> None:
        if self._training is not None:
            training = asyncio.wrap_future(self._training)
            training.cancel()
            await asyncio.gather(training, return_exceptions=True)
        with contextlib.nullcontext() if self._peer is None else self._file:
            measured, steps = self._reports.unrecorded(), 0 if self._replica is None else self._replica.steps_made
            await shut_down(self._session, self._peer, why, done=done, error=error, measured=measured, steps=steps)
