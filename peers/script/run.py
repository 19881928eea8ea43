"""A peer's part in a run, for a user's own PyTorch loop: the object that `samovar.join` returns (`join`).

The peer lives on an event loop in a thread of its own. `wrap` hangs a hook on the optimizer, which stays the same
object: step(), zero_grad, schedulers, GradScaler and state_dict work as before. After every `period` steps the hook
averages the model with the other peers; with `overlap` the loop continues at once and waits a period later.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import os
import sys
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from types import TracebackType
from typing import Any, NoReturn, Self, TypeVar, cast

import torch
from torch import nn

from ...aggregation.periods.displacement import Probe
from ...protocols.local_sgd.filling import Filling
from ...protocols.local_sgd.local_sgd import Contribution
from ...protocols.members.membership import MembershipError
from ..conversations.policies import first_state
from ..errors import one_line
from ..launch.session import Opening
from ..peer import Identity, Peer
from ..training.stop import Stopped
from .delayed import Delayed
from .loop_thread import Background
from .model_hook import Losses, Optimizer, Wrapped
from .rounds import ScriptRounds
from .shutdown import part
from .synchronous import Synchronous

T = TypeVar("T")


class Run:
    """This process's part in a run. As a context manager it leaves at the end."""

    def __init__(self, background: Background, opening: Opening, invitation: dict[str, Any] | None) -> None:
        self._background, self._opening, self._invitation = background, opening, invitation
        self._peer: Peer | None = None
        # Local steps since this peer's last contribution, and since its last record; samples in a batch.
        self._steps, self._untold, self._weight = 0, 0, 1.0
        self._losses = Losses()
        self._synchronous: Synchronous | None = None
        self._delayed: Delayed | None = None
        self._unhook: Callable[[], None] = lambda: None
        self._process, self._gone = os.getpid(), False
        atexit.register(self._forgotten)

    @property
    def part(self) -> int:
        """This peer's part of the data, from 0 to `parts` - 1; final once `wrap` has returned. Raises ValueError before
        that in a run joined by address, whose members have not assigned it yet."""
        if self._peer is None and self._opening.control is None and not self._opening.orders.founder:
            raise ValueError("run.part is known once run.wrap has returned: the run's members say it")
        return self._opening.orders.part if self._peer is None else self._peer.membership.me.data_part

    @property
    def parts(self) -> int:
        return self._opening.settings.peers

    @property
    def peers(self) -> int:
        """The number of peers that train together now."""
        return 1 if self._peer is None else len(self._peer.membership.view.members)

    @property
    def period(self) -> int:
        """The number of this peer's step() calls in the present round."""
        return 0 if self._peer is None else self._peer.due

    @property
    def invitation(self) -> dict[str, Any] | None:
        """How others join: ``samovar.join(**invitation)``. None under `samovar train`, which prints it."""
        return self._invitation

    def wrap(self, optimizer: Optimizer, model: nn.Module) -> Optimizer:
        """Average `model` with the other peers after every period of ``optimizer.step()`` calls; with
        ``average="gradients"`` its gradients instead, while ``backward()`` computes them.

        Waits until enough peers have gathered, loads the run's weights into `model`, and returns `optimizer` itself.
        Raises JoinRefused when the run's model has another layout.
        """
        if not isinstance(optimizer, torch.optim.Optimizer) or not isinstance(model, nn.Module):
            given = f"{type(optimizer).__name__}, {type(model).__name__}"
            raise ValueError(f"run.wrap takes the optimizer, then the model; it was given: {given}")
        if self._peer is not None or self._gone:
            raise ValueError("a run averages one model, once: put all your networks into one nn.Module, or join again")
        synchronous = self._opening.settings.average == "gradients"
        with self._ending_with_it():
            self._wrapped = Wrapped(optimizer, model, gradients=synchronous, inner=self._opening.settings.inner)
            brought = self._contribution(0.0)
            self._take(self._do(lambda: self._begin(brought)))
        if synchronous:
            self._synchronous = Synchronous(model, self._background, self._mean_gradient, self._within_backward)
            self._unhook = self._synchronous.gradients.unhook
        else:
            self._unhook = optimizer.register_step_post_hook(lambda *_: self._after_step()).remove
        return optimizer

    def loss(self, loss: float | torch.Tensor) -> None:
        """Report the training loss of a batch, for the records and an adaptive period, which never changes without it.
        One that is not finite, as under a GradScaler, makes the round report the mean loss of the one before."""
        self._losses.add(loss)

    def samples(self, count: float) -> None:
        """Set the number of samples behind the gradients to be averaged next: their weight, until it is set again."""
        if not 0 < count < math.inf:
            raise ValueError(f"run.samples takes the number of samples in a batch, got {count}")
        self._weight = float(count)

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Inside, ``backward()`` only adds to this peer's own gradients: the first one outside averages their sum."""
        if self._synchronous is None:
            raise ValueError('run.no_sync is for gradients: samovar.join(average="gradients"), then run.wrap first')
        gradients = self._synchronous.gradients
        before, gradients.accumulating = gradients.accumulating, True
        try:
            yield
        finally:
            gradients.accumulating = before

    def leave(self) -> None:
        """Average the steps since the last round once more, and leave; the others continue."""
        if not self._gone and not self._opening.stop.flag:
            with self._ending_with_it():
                self._catch_up_with_round()
                if self._steps:
                    self._average()
                if self._peer is not None and self._opening.settings.fragments > 1:
                    self._take(self._peer.state.vector)  # drops progress that only this peer has
        self._go("its script is done", done=not self._opening.stop.flag)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.leave()
        else:
            self._fail(error)

    async def _begin(self, brought: Contribution) -> torch.Tensor:
        """Start the peer; returns the weights to begin with."""
        opening, settings, orders = self._opening, self._opening.settings, self._opening.orders
        self._file, record = opening.recorder()
        self._peer = peer = Peer(
            opening.endpoint,
            settings,
            Identity(orders.name, orders.part, settings.link or "", settings.site or ""),
            run=orders.run,
            layout=self._wrapped.layout,
            agreement=self._wrapped.agreement,
            state=first_state(settings, brought.vector),
            parameters=self._wrapped.parameters,
            invitation=opening.invitation,
            record=record,
            store=opening.store,
        )
        if settings.overlap:
            self._delayed = Delayed(peer)
        if peer.averaging.watches:
            self._wrapped.probe = Probe(self._wrapped.parameters)
        self._wrapped.variate = peer.variate
        opening.ready(peer)
        late = await peer.start(await opening.contact)
        self._rounds = ScriptRounds(peer, self._losses)
        if late and settings.average == "gradients":
            raise ValueError(
                "this run averages gradients and has begun: a latecomer has not the others' optimizer state"
            )
        return (await peer.follow(brought)).vector if late else peer.state.vector

    def _contribution(self, weight: float, filling: Filling | None = None, steps: int = 0) -> Contribution:
        elapsed_s, loss = 0.0 if self._peer is None else self._peer.elapsed_s, self._losses.close()
        return self._wrapped.contribution(weight, loss=loss, elapsed_s=elapsed_s, filling=filling, steps=steps)

    def _after_step(self) -> None:
        if self._opening.stop.flag:
            self._stop()
        self._steps, self._untold = self._steps + 1, self._untold + 1
        self._wrapped.stepped(halfway=self._steps == self.period // 2)
        if self._steps >= self.period:
            with self._ending_with_it():
                (self._average if self._delayed is None else self._average_behind)()
        elif self._peer is not None and self._peer.stretch(self._steps - 1) == 1:
            with self._ending_with_it():
                self._average_at_site(self._peer)

    def _average(self) -> None:
        self._take(self._do(partial(self._rounds.average, self._trained(), self._untold)))

    def _trained(self) -> Contribution:
        whole = self._steps if self._steps >= self.period else 0  # a last part-round before leaving is not rescaled
        return self._contribution(float(self._steps), steps=whole)

    def _average_behind(self) -> None:
        """Merge the round that is under way, and begin the next."""
        self._catch_up_with_round()
        if self._steps and self._delayed is not None:
            self._do(partial(self._rounds.begin, self._delayed, self._trained()))
            self._steps = 0

    def _catch_up_with_round(self) -> None:
        """Merge the round under way, if any. A peer that catches up with the others loses its steps since."""
        if self._delayed is not None and self._delayed.under_way:
            brought, outcome = self._do(partial(self._rounds.end, self._delayed, self._untold))
            self._untold = 0
            if outcome.caught_up or not self._steps:
                self._take(outcome.vector)
            else:
                self._wrapped.merge(outcome.vector, brought.vector, outcome.part, self._opening.settings.overlap_share)

    def _average_at_site(self, peer: Peer) -> None:
        before, steps = peer.state, self._steps
        brought = self._wrapped.contribution(float(steps), loss=0.0, elapsed_s=0.0, steps=steps)
        vector = self._do(partial(self._rounds.average_at_site, brought))
        if peer.state is not before:  # the round is over
            self._take(peer.state.vector)
        elif vector is not brought.vector:
            self._wrapped.take_over(vector)

    async def _mean_gradient(self, filling: Filling) -> torch.Tensor | None:
        """The mean gradient of this step. Raises MembershipError when the others have gone on without this peer."""
        assert self._peer is not None
        before, brought = self._peer.state.round, self._contribution(self._weight, filling)
        mean = await self._opening.stop.unless(partial(self._rounds.average, brought, 1))
        if self._peer.state.round != before + 1 and not self._opening.stop.flag:
            raise MembershipError("the others have taken steps without this peer, and it has not their optimizer state")
        return mean

    def _take(self, vector: torch.Tensor | None) -> None:
        self._wrapped.load(vector)
        self._steps = self._untold = 0

    def _do(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run `work` in the background and return its result; a stop of the run meanwhile ends the script here."""
        result = self._background.call(self._opening.stop.unless(work))
        if self._opening.stop.flag:
            self._stop()
        return cast(T, result)

    @contextlib.contextmanager
    def _ending_with_it(self) -> Iterator[None]:
        """A failure or an interrupt of work with the others ends this peer's part. The script may catch the error and
        train on alone."""
        try:
            yield
        except BaseException as error:
            self._fail(error)
            raise

    @contextlib.contextmanager
    def _within_backward(self) -> Iterator[None]:
        with self._ending_with_it():
            yield
        if self._opening.stop.flag:
            self._stop()

    def _stop(self) -> NoReturn:
        self._go("stopped by its user")
        raise Stopped

    def _forgotten(self) -> None:
        """The script ended without leaving, or with an error: the others must not wait for this peer."""
        if os.getpid() == self._process:  # a forked child has no part in the run
            if self._steps and not self._gone:
                self._opening.forgot = f"run.leave() was not called: {self._steps} local steps are lost"
                print(f"samovar: {self._opening.forgot}", file=sys.stderr)
            self._fail(getattr(sys, "last_value", None))

    def _fail(self, error: BaseException | None) -> None:
        failed = None if isinstance(error, SystemExit) else error
        self._go("its script ended" if failed is None else f"its script failed: {one_line(failed)}", error=failed)

    def _go(self, why: str, *, done: bool = False, error: BaseException | None = None) -> None:
        """Tell the others, with `done` once they have the last round's result, and end the background work."""
        if not self._gone:
            self._gone = True
            atexit.unregister(self._forgotten)
            self._unhook()
            self._background.call(self._end(why, done=done, error=error))
            self._background.close()

    async def _end(self, why: str, *, done: bool, error: BaseException | None) -> None:
        if self._delayed is not None:
            await self._delayed.drop()
        with contextlib.nullcontext() if self._peer is None else self._file:
            await part(self._opening, self._peer, why, done=done, error=error)
