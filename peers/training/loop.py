"""The training loop of a task: take local steps, average, load the mean, repeat; evaluate and checkpoint in between."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from ...aggregation.fednova import UNKNOWN_SPEEDS, Speeds
from ...aggregation.periods.displacement import Probe
from ...aggregation.periods.policy import PeriodState
from ...aggregation.schedules.choice import UNKNOWN, LinkCosts
from ...protocols.local_sgd.local_sgd import Contribution, Outcome
from ...protocols.local_sgd.state import State
from ...protocols.local_sgd.works import EVALUATION, LOCAL_STEPS
from ...protocols.transport import PeerId
from ..checkpoints.checkpoint import Snapshot
from ..errors import one_line
from ..peer import Peer
from ..records.tally import saved_text
from ..task.evaluation import NOT_EVALUATED, Evaluation
from .compute import Compute
from .stop import Stop
from .trainer import Trainer

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Ended:
    """How a peer's training ended. `accuracy`: of the final model, None on a peer that did not evaluate it; `unsaved`:
    why the last checkpoint could not be written, "" if it was."""

    finished: bool
    accuracy: float | None
    unsaved: str = ""


class Training:
    """One peer's training run. `keep` writes a checkpoint; with None no checkpoint is written."""

    def __init__(
        self, peer: Peer, trainer: Trainer, compute: Compute, stop: Stop, keep: Callable[[Snapshot], None] | None = None
    ) -> None:
        self._peer, self._trainer, self._compute, self._stop, self._keep = peer, trainer, compute, stop, keep
        if peer.averaging.watches:
            trainer.probe = Probe(trainer.parameters)
        trainer.variate = peer.variate
        self._begun_from: State | None = None
        self._outcome: Outcome | None = None
        self._saved_at = -math.inf
        """When the last checkpoint was due, on the loop's clock. The initial -inf makes the first round write one, so
        that a Ctrl-C soon afterwards finds a checkpoint."""
        self._compute_s, self._computed_steps = 0.0, 0
        self._evaluation = NOT_EVALUATED
        """The evaluation of the last round's outcome."""
        self._saving: tuple[State, asyncio.Task[str]] | None = None
        """The checkpoint being written while this peer waits for others, and the state in it."""
        peer.membership.on_waiting.append(lambda why: self._save_meanwhile())

    async def run(self, contact: Awaitable[PeerId | None]) -> Ended:
        """Train until the run is over or stopped. `contact`: the peer to join through, None to found the run.

        Raises the errors of the peer and of the trainer, after saving the state that this peer has committed.
        """
        try:
            return await self._run(contact)
        except Exception:
            if self._peer.started:
                self._stop.set()  # nothing waits any longer for a background average
                await self._save(failed=True)
            raise
        finally:
            if self._saving is not None:
                await self._saving[1]

    async def rehearse(self) -> None:
        """Evaluate once before training, so that a broken `evaluate` ends the run now and not after the first rounds.
        The model and the training are unchanged. Raises EvaluationFailed."""
        with self._peer.stalls.at_work(EVALUATION):
            await self._compute.run(self._trainer.evaluate)

    async def _run(self, contact: Awaitable[PeerId | None]) -> Ended:
        peer, trainer = self._peer, self._trainer
        if trainer.steps > 0:
            # Resumed amid a round. If the others are further, `start` fetches their state and these steps are lost.
            self._begun_from = peer.state
            self._computed_steps = trainer.steps_in_round  # no record has counted them yet
        late = await self._stop.unless(lambda: self._start(contact))
        if late is None:
            return Ended(False, None)
        trainer.take_part(peer.membership.me.data_part, peer.settings.peers)
        if late:
            bystander = await self._compute.run(lambda: trainer.contribution(0.0))
            await self._after(await self._stop.unless(lambda: peer.follow(bystander)))
        while peer.averaging.period > 0 and not self._stop.flag:
            await peer.averaging.or_leave(self._round())
        unsaved = await self._save()
        if self._stop.flag:
            peer.tell("stopped")
            return Ended(False, None, unsaved)
        await peer.finish()
        accuracy = self._evaluation.accuracy
        if accuracy is None and self._evaluates():  # the coordinator that should have evaluated has left
            accuracy = await self._evaluated(peer.state)
        return Ended(True, accuracy, unsaved)

    async def _start(self, contact: Awaitable[PeerId | None]) -> bool:
        return await self._peer.start(await contact)

    async def _from(self, state: State, work: Callable[[], T], *, steps: int = 0) -> T:
        """Run `work` on the compute thread, first loading the agreed model if that has not happened. Both in one
        hand-over, because a thread switch costs more than a small step."""
        fresh, self._begun_from = state is not self._begun_from, state
        outcome = self._outcome
        vector = state.vector if outcome is None or outcome.state is not state else outcome.vector

        def whole() -> T:
            if fresh:
                self._trainer.load(vector)
            return work()

        return await self._compute.run(whole, steps=steps)

    async def _round(self) -> None:
        brought = await self._local_steps()
        if brought is not None:
            await self._average(brought)

    async def _local_steps(self) -> Contribution | None:
        """Take the local steps of a round, starting from the agreed model. None: the run was stopped, or the round was
        over, before the last step."""
        peer, trainer = self._peer, self._trainer
        state, elapsed_s = peer.state, peer.elapsed_s
        brought = await self._stretch(state, elapsed_s, trainer.steps_in_round if state is self._begun_from else 0)
        while brought is not None and brought.steps < peer.due:
            amid = brought
            gone_on = await self._stop.unless(lambda: peer.average_at_site(amid))  # noqa: B023
            if gone_on is None or peer.state is not state:
                return None
            brought = await self._stretch(state, elapsed_s, amid.steps, None if gone_on is amid.vector else gone_on)
        return brought

    async def _stretch(
        self, state: State, elapsed_s: float, taken: int, vector: Tensor | None = None
    ) -> Contribution | None:
        """Take the local steps up to the next average, of the site or of all. `taken`: steps of the round so far;
        `vector`: the model to start from, None: the trainer's present one."""
        began, due = asyncio.get_running_loop().time(), self._peer.stretch(taken)

        def local_steps() -> Contribution | None:
            if vector is not None:
                self._trainer.take_over(vector)
            whole = self._trainer.train(due, lambda: self._stop.flag) == due
            return self._trainer.contribution(elapsed_s) if whole else None

        with self._taking_steps():
            brought = await self._from(state, local_steps, steps=due)
        self._compute_s += asyncio.get_running_loop().time() - began
        self._computed_steps += due
        return brought

    def _taking_steps(self) -> AbstractContextManager[object]:
        trainer = self._trainer
        return self._peer.stalls.at_work(LOCAL_STEPS, lambda: f"in {trainer.at}, step {trainer.steps + 1}")

    async def _average(self, brought: Contribution) -> None:
        peer, compute_s, steps = self._peer, self._compute_s, self._computed_steps
        outcome = await self._stop.unless(lambda: peer.average(brought, compute_s=compute_s, steps=steps))
        if outcome is not None:
            self._compute_s, self._computed_steps = 0.0, 0
            await self._after(outcome)
            peer.note(self._evaluation)

    async def _after(self, outcome: Outcome | None) -> None:
        """Evaluate a round's outcome and write a checkpoint, each if it is due."""
        if outcome is None:
            return
        self._outcome = outcome
        last = self._peer.averaging.period == 0
        due = last or outcome.state.round % self._peer.settings.evaluate_every == 0
        self._evaluation = NOT_EVALUATED
        if due and self._evaluates():
            with self._peer.stalls.at_work(EVALUATION) as work:
                accuracy = await self._evaluated(outcome.state)
            self._evaluation = Evaluation(accuracy, work.took_s)
        if asyncio.get_running_loop().time() - self._saved_at >= self._peer.settings.checkpoint_every_s and not last:
            await self._save()
            self._saved_at = asyncio.get_running_loop().time()

    def _evaluates(self) -> bool:
        """Whether this peer evaluates. Only the coordinator of the members does."""
        return self._trainer.task.evaluate is not None and self._peer.membership.coordinator == self._peer.endpoint.id

    async def _evaluated(self, state: State) -> float | None:
        return await self._from(state, self._trainer.evaluate)

    def _save_meanwhile(self) -> None:
        """Start to write a checkpoint while this peer waits for others. They may never come back; the committed state
        is then safe on disk, however this peer ends."""
        state = self._peer.state
        if self._peer.started and self._keep is not None and (self._saving is None or self._saving[0] is not state):
            self._saving = state, asyncio.create_task(self._save_amid(), name="checkpoint")

    async def _save_amid(self) -> str:
        """Write a checkpoint amid a round."""
        return await self._save()

    async def _save(self, *, failed: bool = False) -> str:
        """Write a checkpoint; returns why it could not be written, "" if it was. `failed`: the training failed. A model
        or loss that is not finite is then reset to the agreed model before it is written."""
        state = self._peer.state
        write = self._writer(state)

        def recovered() -> None:
            if failed:
                self._trainer.recover(state.vector)
            write()

        return await self._written(self._from(state, recovered), state)

    def _writer(self, state: State) -> Callable[[], None]:
        """A function that writes a checkpoint: the trainer as it is at the call, with `state` and the present residual
        and time."""
        keep, elapsed_s, residual = self._keep, self._peer.elapsed_s, self._peer.averaging.residual

        def write() -> None:
            if keep is not None:
                keep(with_state(self._trainer.snapshot(), state, elapsed_s, residual))

        return write

    async def _written(self, writing: Awaitable[None], state: State) -> str:
        """Await `writing`, a checkpoint of `state`, and record the outcome. Returns why it could not be written, "" if
        it was."""
        try:
            with self._peer.stalls.at_work("writing a checkpoint"):
                await writing
        except Exception as error:
            self._peer.tell("checkpoint_failed", why=one_line(error))
            return one_line(error)
        if self._keep is not None:
            self._peer.tell("checkpoint", why=saved_text(state.round))
        return ""


def with_state(trainer: Snapshot, state: State, elapsed_s: float, residual: Tensor | None = None) -> Snapshot:
    """One snapshot of a peer: its trainer, the last agreed state, and its codec's residual."""
    tensors = {**trainer.tensors, "state/vector": state.vector}
    if residual is not None:
        tensors["residual"] = residual
    tensors |= {f"state/outer/{index}": tensor for index, tensor in enumerate(state.outer)}
    agreed = {
        "round": state.round,
        "step": state.step,
        "period": state.period.to_plain(),
        "outer": len(state.outer),
        "links": list(state.links),
        "speeds": list(state.speeds),
    }
    return Snapshot(tensors, {**trainer.numbers, "state": agreed, "elapsed_s": elapsed_s})


def resume(snapshot: Snapshot, trainer: Trainer) -> tuple[State, float, Tensor | None]:
    """Restore `trainer` from `snapshot`. Returns the agreed state, the seconds trained before, and the codec's
    residual.

    Raises CheckpointError.
    """
    agreed = snapshot.numbers["state"]
    outer = tuple(snapshot.tensors[f"state/outer/{index}"] for index in range(agreed["outer"]))
    period = PeriodState.from_plain(agreed["period"])
    links, speeds = LinkCosts(*agreed.get("links", UNKNOWN)), Speeds(*agreed.get("speeds", UNKNOWN_SPEEDS))
    state = State(agreed["round"], agreed["step"], snapshot.tensors["state/vector"], outer, period, links, speeds)
    trainer.restore(snapshot)
    return state, float(snapshot.numbers["elapsed_s"]), snapshot.tensors.get("residual")
