"""The second way in: somebody's own PyTorch loop, with at most five lines more.

    import samovar
    run = samovar.join()
    optimizer = run.wrap(optimizer, model)
    ...
    run.leave()

The peer lives on an event loop in a thread of its own. `wrap` hangs a hook on the optimizer it is given, which stays
the very same object: step(), zero_grad, schedulers, GradScaler and state_dict work as before. After every `period`
calls of step() the hook averages the model with the other peers, and only then does the loop go on.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
from collections.abc import Coroutine
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import torch
from torch import nn

from ..aggregation.vector import Layout
from ..protocols.local_sgd import Contribution, Outcome
from .control import CONTROL_VARIABLE
from .door import Door, open_alone, open_at, own_name
from .opening import Opening, open_for_launcher, orders_of_launcher, raise_file_limit
from .peer import Identity, Peer, first_state
from .settings import Settings
from .stop import Stop
from .tensors import averaged

T = TypeVar("T")
_CLOSE_S = 5.0


class Stopped(SystemExit):
    """The run was stopped from outside, e.g. by Ctrl-C: the script ends, with exit code 0."""

    def __init__(self) -> None:
        super().__init__(0)


def join(
    address: str | None = None,
    *,
    invite: str | None = None,
    peer_key: str | None = None,
    name: str | None = None,
    **settings: Any,
) -> Run:
    """Join a run: the one that ``samovar train SCRIPT`` spawned this process for, or the one at `address`.

    Without either a run begins here with ``peers=1``, and how others join it is printed. `settings` are those of
    `samovar.Settings` (``period=16``, ``peers=2``, ``listen="tcp://*:4000"``); what all peers share is the run's.
    Raises ValueError, OSError and PeerLost, each with one clear line.
    """
    background = _Background()
    try:
        if CONTROL_VARIABLE in os.environ:
            opening = background.call(_launched())
        else:
            plain = {key: value if value is None else str(value) for key, value in settings.items()}
            wished = Settings.read(None, {"peers": 1, **plain})
            door = None if address is None else Door.of(address, invite, peer_key, wished)
            opening = background.call(_by_itself(door, name, wished))
    except BaseException:
        background.close()
        raise
    return Run(background, opening)


async def _launched() -> Opening:
    control, orders = await orders_of_launcher()
    torch.set_num_threads(orders.threads)
    return await open_for_launcher(control, orders)


async def _by_itself(door: Door | None, name: str | None, settings: Settings) -> Opening:
    raise_file_limit()
    script = Path(sys.argv[0] or "script")
    if door is None:
        opening, how = await open_alone(settings, task=script)
        print(f"samovar: others join with samovar.join({how})", file=sys.stderr)
        return opening
    return await open_at(door, settings, Stop(), name=name or own_name(), task=script)


class _Background:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="samovar", daemon=True)
        self._thread.start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do `work` on the loop; wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_S)


class Run:
    """This process's part in a run. Also a context manager, which leaves at its end."""

    def __init__(self, background: _Background, opening: Opening) -> None:
        self._background, self._opening = background, opening
        self._peer: Peer | None = None
        self._steps = 0
        self._loss_sum, self._losses = 0.0, 0
        self._left = False
        self._trained_since_s = 0.0
        atexit.register(self._abandon)

    @property
    def part(self) -> int:
        """Which part of the data is this peer's own, from 0 to `parts` - 1; final once `wrap` has returned."""
        return self._opening.orders.part if self._peer is None else self._peer.membership.me.data_part

    @property
    def parts(self) -> int:
        return self._opening.settings.peers

    @property
    def peers(self) -> int:
        """How many peers train together now."""
        return 1 if self._peer is None else len(self._peer.membership.view.members)

    def wrap(self, optimizer: torch.optim.Optimizer, model: nn.Module) -> torch.optim.Optimizer:
        """Average `model` with the other peers after every period of ``optimizer.step()`` calls.

        Waits until enough peers have gathered, loads the run's weights into `model`, and returns `optimizer` itself.
        Raises JoinRefused when the run's model has another layout.
        """
        self._tensors = averaged(model)
        self._layout = Layout.of(self._tensors)
        self._optimizer = optimizer
        outcome = self._waiting(self._begin())
        if self._peer is not None:
            self._layout.load(self._peer.state.vector, self._tensors)
        if outcome is not None:
            self._take(outcome)
        optimizer.register_step_post_hook(lambda *_: self._after_step())
        return optimizer

    def loss(self, loss: float | torch.Tensor) -> None:
        """Tell a local step's training loss: for the records, and for an adaptive period, which stays as it began
        when nobody tells."""
        self._loss_sum += float(loss.detach() if isinstance(loss, torch.Tensor) else loss)
        self._losses += 1

    def leave(self) -> None:
        """Average once more what was trained since the last time, and go; the others go on."""
        if self._left:
            return
        if self._steps and not self._opening.stop.flag:
            self._average()
        self._left = True
        self._background.call(self._end())
        self._background.close()
        atexit.unregister(self._abandon)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.leave()
        else:
            self._abandon()

    async def _begin(self) -> Outcome | None:
        opening, settings = self._opening, self._opening.settings
        self._file, record = opening.recorder()
        vector = self._layout.flatten(self._tensors)
        orders = opening.orders
        self._peer = peer = Peer(
            opening.endpoint,
            settings,
            Identity(orders.name, orders.part),
            run=orders.run,
            layout=self._layout,
            state=first_state(settings, vector),
            guest=orders.guest,
            record=record,
        )
        opening.ready()
        late = await peer.start(await opening.contact)
        self._trained_since_s = asyncio.get_running_loop().time()
        return await peer.follow(self._contribution(0.0)) if late else None

    def _contribution(self, weight: float) -> Contribution:
        assert self._peer is not None
        loss = self._loss_sum / self._losses if self._losses else 0.0
        rate = float(self._optimizer.param_groups[0]["lr"])
        return Contribution(self._layout.flatten(self._tensors), weight, loss, rate, self._peer.elapsed_s)

    def _after_step(self) -> None:
        if self._peer is None or self._left:
            return
        if self._opening.stop.flag:
            self._stopped()
        self._steps += 1
        if self._steps >= self._peer.averaging.period:
            self._average()

    def _average(self) -> None:
        assert self._peer is not None
        self._take(self._waiting(self._round(self._contribution(float(self._steps)), self._steps)))

    async def _round(self, brought: Contribution, steps: int) -> Outcome:
        assert self._peer is not None
        compute_s = asyncio.get_running_loop().time() - self._trained_since_s
        outcome = await self._peer.average(brought, compute_s=compute_s, steps=steps)
        self._peer.note()
        self._trained_since_s = asyncio.get_running_loop().time()
        return outcome

    def _take(self, outcome: Outcome) -> None:
        self._layout.load(outcome.state.vector, self._tensors)
        self._steps = self._losses = 0
        self._loss_sum = 0.0

    def _waiting(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`, unless the run is stopped meanwhile."""
        done, result = self._background.call(self._unless_stopped(work))
        if not done:
            self._stopped()
        return result  # type: ignore[return-value]

    async def _unless_stopped(self, work: Coroutine[Any, Any, T]) -> tuple[bool, T | None]:
        async def finished() -> tuple[bool, T | None]:
            return True, await work

        return await self._opening.stop.unless(finished) or (False, None)

    def _stopped(self) -> None:
        self._left = True
        self._background.call(self._end())
        raise Stopped

    async def _end(self) -> None:
        peer, opening = self._peer, self._opening
        if peer is None:
            opening.endpoint.abort()
        else:
            try:
                async with asyncio.timeout(opening.settings.patience_s if not opening.stop.flag else 0.5):
                    await peer.leave("its script is done")
            except TimeoutError:
                pass
            peer.close()
            self._file.close()
            if opening.control is not None:
                ended = {"finished": not opening.stop.flag, "accuracy": None, "summary": asdict(peer.summary())}
                opening.control.tell("ended", ended)
        await opening.close()

    def _abandon(self) -> None:
        """The script ended without leaving, or with an error: the others must not wait for this peer."""
        if not self._left:
            self._left = True
            self._background.call(self._end())
            self._background.close()
