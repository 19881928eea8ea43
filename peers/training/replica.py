"""Replica: the interface between the training loop (`loop`) and one peer's model, data and optimizer. Three classes
implement it: for a task file's trainer (`task_replica`), for a user's own training loop (`script.replica`), and for a
peer that trains nothing, such as a server (`no_model`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from ...protocols.conversation import Position
from ...protocols.work import Update, Work
from ..checkpoints.checkpoint import Snapshot
from ..records.records import ExchangeRecord
from .stop import Stop

Write = Callable[[Snapshot], None]
"""Writes a checkpoint that holds this snapshot of a replica. Called on the compute thread."""


class Replica(Protocol):
    """One peer's model, data and optimizer."""

    @property
    def at(self) -> str:
        """The progress of the present work as text, e.g. "in data(), step 12", for reports of a stalled peer."""
        ...

    @property
    def steps_taken(self) -> int:
        """Local steps of the present round that the model holds. The loop reads it when the peer enters the run: they
        are not 0 after a restore from a checkpoint that was taken amid a round."""
        ...

    @property
    def steps_made(self) -> int:
        """Local steps that this process has taken so far, also those whose update was not brought. Always 0 where
        gradients are averaged, as each step is an exchange."""
        ...

    @property
    def works_on(self) -> bool:
        """Whether the local steps go on when the loop is stopped, until the owner of the replica sees that: those of a
        script. The loop then leaves it to that owner to tell that the peer was stopped."""
        ...

    def set_data_shard(self, data_shard: int, data_shards: int) -> None:
        """Take the data shard with index `data_shard`, 0 to `data_shards` - 1, as this peer's data. The loop calls this
        one time, after the peer has joined and before its first work. A replica that does not choose its data itself
        (a script's, a server's) does nothing."""
        ...

    def note(self, record: ExchangeRecord) -> None:
        """Note that an exchange is over, with its record. The task's hook gets the record later, by `end_round`."""
        ...

    async def do(self, work: Work, stop: Stop) -> Update | None:
        """Do `work`: apply its begin to the model, and then its job, such as local steps or an evaluation. Returns the
        update, e.g. the new model; None: `stop` was set before it was done. When `work.begin` is the same object as
        that of the last work, it is not applied again. Raises ValueError for a job of a kind that the replica cannot
        do, and the errors of the user's functions."""
        ...

    async def write_model(self, vector: Tensor, write: Write) -> None:
        """Call `write` with the tensors of the model `vector` [n], by their names in a checkpoint. Training is not
        affected. Asked only of a replica that evaluates; another one may raise ValueError or do nothing."""
        ...

    async def end_round(self, position: Position) -> None:
        """Apply the begin of `position`, which is the change of the model with which the conversation's next work
        begins, and call the task's hook for the exchanges that led to it. Nothing is done while an exchange is under
        way: the begin is then this peer's own update."""
        ...

    async def save(self, position: Position, write: Write | None, *, failed: bool) -> None:
        """Apply the begin of `position` to the model, and call `write` with a snapshot of the replica; None: write
        none. Where the begin is this peer's update, because an exchange is under way, nothing is applied, and the
        snapshot has the model of that update. `failed`: the training failed; a model that is not finite, or whose loss
        is not, is then replaced by the agreed model first. A script's replica writes nothing: the script keeps its own
        checkpoints."""
        ...
