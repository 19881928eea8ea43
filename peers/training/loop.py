"""The training loop of a peer. It fetches each work from the conversation, has the replica do it, and brings the update
back to the conversation. Checkpoints are written between works."""

from __future__ import annotations

import asyncio
import math
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace

from torch import Tensor

from ...protocols.conversation import End, Outcome
from ...protocols.stalls.works import EVALUATION, LOCAL_STEPS
from ...protocols.transport import PeerId
from ...protocols.work import Evaluate, Steps, Update, Work
from ..checkpoints.best import BestModel
from ..checkpoints.checkpoint import Snapshot
from ..errors import one_line
from ..peer import Peer
from ..records.tally import saved_text
from .replica import Replica
from .sleep import Sleep
from .stop import Stop


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a peer's training. `finished`: the peer has done all works of its conversation; False: it was stopped
    before. `metrics`: metrics of the final model by name; empty on a peer that did not evaluate it, or was stopped.
    `unsaved`: why the last checkpoint could not be written; "": it was written, or none was to be. `unkept`: why the
    best model that this peer has evaluated could not be kept, though the kept one is worse; "": it could. `scales`: the
    scales of these metrics, by name. `end`: why the run is over; None: this peer was stopped, or the run goes on
    without it, or its conversation does not report it. `saved`: of a stopped peer, the text that names the exchange of
    its checkpoint; "": it has written none."""

    finished: bool
    metrics: Mapping[str, float]
    unsaved: str = ""
    scales: Mapping[str, str] = field(default_factory=dict)
    end: End | None = None
    unkept: str = ""
    saved: str = ""


class Training:
    """One peer's training, from joining to its end. `stop`: the request to stop it. `keep`: writes a checkpoint; a
    task's replica calls it on its compute thread, a script's never. None: no checkpoints are written. `best`: writes
    the best model that this peer has evaluated; None: it is not kept. The training has checkpoints written also while
    this peer waits for others (`membership.on_waiting`)."""

    def __init__(
        self,
        peer: Peer,
        replica: Replica,
        stop: Stop,
        keep: Callable[[Snapshot], None] | None = None,
        best: BestModel | None = None,
    ) -> None:
        self.peer, self._replica, self._stop, self._keep, self._best = peer, replica, stop, keep, best
        self._conversation, self._sleep = peer.conversation, Sleep(peer, stop)
        self._saved_at = -math.inf
        """The time of the last periodic checkpoint, in seconds on the event loop's clock. It begins with -inf, so that
        the first exchange writes one, and a Ctrl-C soon afterwards finds a checkpoint."""
        self._exchanges = 0
        """The number of exchanges since this peer joined or woke."""
        self._metrics: Mapping[str, float] = {}
        """Metrics of the model after the last exchange; empty until this peer has evaluated it."""
        self._saving: tuple[weakref.ref[Tensor], asyncio.Task[str]] | None = None
        """The agreed vector in the checkpoint that was last begun while this peer waited for others, as long as it is
        held elsewhere, and the task that writes this checkpoint."""
        self._unkept: tuple[Mapping[str, float], str] = {}, ""
        """The metrics of the last best model that could not be written, and the reason; "": each could be."""
        peer.membership.on_waiting.append(lambda why: self._save_meanwhile())

    async def run(self, contact: Awaitable[PeerId | None]) -> Ended:
        """Train until this peer's works are all done, or it is stopped. `contact`: gives the peer to join through;
        None: found the run. It is awaited more than once, so it must be a future or a task, not a coroutine. To be
        called once.

        Raises the errors of the conversation and of the replica. If the run's clock had started, a checkpoint is
        written first (`Replica.save` with `failed`).
        """
        try:
            return await self._run(contact)
        except Exception:
            if self.peer.clock.started:
                self._stop.set()  # nothing waits any longer for an exchange in the background
                await self._save(failed=True)
            raise
        finally:
            if self._saving is not None:
                await self._saving[1]

    async def _run(self, contact: Awaitable[PeerId | None]) -> Ended:
        peer, conversation = self.peer, self._conversation
        while await self._sleep.unless(lambda: self._enter(contact)) is None:
            if not await self._slept(contact):
                return Ended(False, {})
        shards = peer.settings.peers
        self._replica.set_data_shard(peer.membership.me.attributes.data_shard % shards, shards)
        await self._work()
        while await self._slept(contact):
            await self._work()
        await self._replica.end_round(conversation.position())
        unsaved = await self._save()
        if self._stop.flag:
            if not self._replica.works_on:
                peer.stopped(self._replica.steps_made)
            saved = "" if unsaved or self._keep is None else saved_text(conversation.version, peer.noun)
            return Ended(False, {}, unsaved, unkept=self._why_unkept(), saved=saved)
        end = await conversation.finish()
        await self._work()
        if end is not None and end.by != "steps":
            peer.tell("ended", why=end.why)
        return Ended(True, self._metrics, unsaved, peer.scales(self._metrics), end, self._why_unkept())

    async def _enter(self, contact: Awaitable[PeerId | None]) -> bool:
        self.peer.came(await self._conversation.enter(await contact, self._replica.steps_taken))
        return True

    async def _slept(self, contact: Awaitable[PeerId | None]) -> bool:
        """Sleep if this peer has to. Returns True when it has slept and is to go on; False when it had not to sleep, or
        was stopped."""
        if not self._sleep.is_due:
            return False
        in_vain, self._exchanges = self._exchanges == 0, 0
        await self._sleep.sleep(await contact, self._save, in_vain=in_vain)
        return not self._stop.flag

    async def _work(self) -> None:
        """Do the conversation's works until there are no more, or until this peer is stopped or has to sleep."""
        try:
            while await self._worked():
                pass
        except ValueError as error:  # the others are told why this peer cannot go on
            await self._conversation.leave(str(error))
            raise

    async def _worked(self) -> bool:
        """Do the next work and bring its update to the conversation. The work and the update, whole models, are kept no
        longer. Returns False when there is no work, or this peer was stopped first. An evaluation that was made is
        brought even then: the best model goes by it, so it has its record."""
        work = await self._sleep.unless(self._conversation.next)
        if work is None or (update := await self._do(work)) is None:
            return False
        if isinstance(work.job, Evaluate):
            outcome = await self._conversation.bring(update)
            self._metrics = update.metrics
            await self._keep_best(work.job.vector, update.metrics)
        elif (outcome := await self._brought(update)) is not None:
            self._metrics = {}
        del work, update
        if outcome is not None:
            await self._after(outcome)
        return True

    async def _brought(self, update: Update) -> Outcome | None:
        return await self._sleep.unless(lambda: self._conversation.bring(update))

    async def _do(self, work: Work) -> Update | None:
        replica, now = self._replica, asyncio.get_running_loop().time
        began = now()
        if not isinstance(work.job, Evaluate):
            self.peer.unrecorded.begins(work.job, began)
        if isinstance(work.job, Steps) and work.job.count == 0:
            update = await replica.do(work, self._stop)
        else:
            kind = EVALUATION if isinstance(work.job, Evaluate) else LOCAL_STEPS
            doing = self.peer.stalls.begin(kind, lambda: replica.at)
            try:
                update = await replica.do(work, self._stop)
            except BaseException:
                doing.end()
                raise
            if update is None or update.filling is None:
                doing.end()
            else:
                update.filling.when_whole(doing.end)
        if update is None and replica.works_on:
            return None
        self.peer.unrecorded.ends(ended := now())
        return None if update is None else replace(update, seconds=ended - began)

    async def _keep_best(self, vector: Tensor, metrics: Mapping[str, float]) -> None:
        """Write the evaluated model `vector` [n], if it is the best so far."""
        best, version = self._best, self._conversation.version
        if best is None or not best.improved(metrics):
            return
        whose = self.peer.name if self.peer.own_model else ""
        try:
            with self.peer.stalls.at_work("writing the best model"):
                await self._replica.write_model(vector, lambda model: best.write(model, metrics, version, whose))
        except Exception as error:
            self._unkept = metrics, f"the best model could not be kept: {one_line(error)}"
            self.peer.tell_once("checkpoint_failed", why=self._unkept[1])

    def _why_unkept(self) -> str:
        """`Ended.unkept`: a better model may have been kept since one could not be, by this peer or another."""
        metrics, why = self._unkept
        return why if self._best is not None and self._best.improved(metrics) else ""

    async def _after(self, outcome: Outcome) -> None:
        """Write the record of the exchange, and a checkpoint if one is due. The task's hook for the exchange comes
        first: it is not called again after a restart, so the checkpoint must hold what it has changed."""
        now = asyncio.get_running_loop().time
        self._exchanges += 1
        if outcome.note:
            self.peer.tell_once("period", outcome.note)
        self._replica.note(self.peer.note(outcome))
        due = now() - self._saved_at >= self.peer.settings.checkpoint_every_s and not self._leaves
        if self._keep is not None and due and not outcome.last:
            await self._replica.end_round(self._conversation.position())
            await self._save()
            self._saved_at = now()

    @property
    def _leaves(self) -> bool:
        """Whether this peer is to stop or to sleep, before which it writes a checkpoint anyway."""
        return self._stop.flag or self._sleep.is_due

    def _save_meanwhile(self) -> None:
        """Begin to write a checkpoint, unless one of the same agreed vector was begun. Called when this peer waits for
        other peers: if they never come back, the committed state is on disk however this peer ends."""
        if self.peer.clock.started and self._keep is not None:
            agreed = self._conversation.position().vector
            if self._saving is None or self._saving[0]() is not agreed:
                self._saving = weakref.ref(agreed), asyncio.create_task(self._save_now(), name="checkpoint")

    async def _save(self, *, failed: bool = False) -> str:
        """Write a checkpoint. Returns the reason if it could not be written, else "". `failed`: the training failed; a
        model that is not finite, or whose loss is not, is then replaced by the agreed model before it is written."""
        if self._leaves or failed:
            for outcome in await self._conversation.settle():
                self._replica.note(self.peer.note(outcome))
            if not failed:  # what has failed may be the hook
                await self._replica.end_round(self._conversation.position())
        return await self._save_now(failed=failed)

    async def _save_now(self, *, failed: bool = False) -> str:
        peer, position, keep = self.peer, self._conversation.position(), self._keep
        elapsed_s, left = peer.clock.elapsed_s, peer.budget_left()

        def write(replica: Snapshot) -> None:
            assert keep is not None
            own = {"own_model": position.own_model}
            numbers = {**replica.numbers, **position.numbers, "elapsed_s": elapsed_s, **own, **left}
            keep(Snapshot({**replica.tensors, **position.tensors}, numbers))

        try:
            with peer.stalls.at_work("writing a checkpoint"):
                await self._replica.save(position, None if keep is None else write, failed=failed)
        except Exception as error:
            peer.tell("checkpoint_failed", why=one_line(error))
            return one_line(error)
        if keep is not None:
            peer.tell("checkpoint", why=saved_text(position.version, peer.noun))
        return ""
