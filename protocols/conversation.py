"""Conversation: the port between an algorithm that peers run together and one peer's model.

A conversation hands out works (`Work`), and the loop brings it an `Update` for each. One loop serves all conversations:

    while (work := await conversation.next()) is not None:
        outcome = await conversation.bring(await replica.do(work))

The values on which peers agree are the conversation's; a replica works on a copy of them. All vectors have one layout
[n]. Each `Work` is answered by exactly one `bring`, in order. A conversation that averages behind local steps returns
from `bring` at once and waits in a later one, so it decides by itself how many exchanges are under way.

How algorithms map to works (B: begin, J: job; the exchange is in `bring` unless stated):

| algorithm | works of one peer |
|---|---|
| local SGD | B Load(mean), J Steps(period) |
| with averages of a site | B Load(mean), J Steps(site period); then B Load(mean of the site), J Steps(.., taken > 0) |
| with overlap | B Keep, J Steps(period), `bring` waits for the round before; then B Add(mean - brought), J Steps(0) |
| data parallel | B StepWith(mean gradient), J Gradient; the update comes while backward still fills it |
| D-PSGD, Moshpit | B Load(mix of the neighbours), J Steps(1 or more) |
| AD-PSGD | B Add(half the difference), J Steps; the passive side answers from its own copy amid the step |
| push-sum (SGP) | B Load(x / w), J Steps; x and w are the conversation's |
| CHOCO-SGD | B Add(gamma * (mix of estimates - own estimate)), J Steps |
| gradient tracking | as D-PSGD, with the correction OnGradient(shift = tracker - own gradient) |
| elastic averaging (EASGD) | B Add(-alpha * (x - center)), J Steps |
| sparse rows | J Foresee(steps) tells the rows; then B Load(parameters and these rows), J Steps; `bring` pushes |
| Downpour, SSP, softsync | `next` pulls (and waits for the clocks): B Load(parameters), J Steps; `bring` pushes |
| backup workers, closed cohort | as above; an update that comes too late is dropped |
| Hogwild! | B Share(vector, lock), J Steps: the steps write into memory that all workers share; nothing is pushed |
| statistical queries | `next` pulls: B Load(model), J Query(partition); `bring` pushes the sums for the partition |
| Sandblaster | as statistical queries, with Query(portion, of_loss): the portion that a coordinator gave |
| FedAvg and its like | `next` waits for the cohort's call: B Load(.., fresh_optimizer), J Steps; FedProx: OnGradient |
| personal models | B Blend(shared model, share), J Steps; the rest of the model stays |
| FedBuff | as FedAvg; `bring` pushes to the buffer and returns |
| federated evaluation | B Keep, J Evaluate(vector) |
| server, relay, aggregator | `next` gives no work until the end: there is no replica |
| a torch.distributed site | one replica whose rank 0 speaks; B and J go to all its ranks |

Work that is no step of a model has ports of its own, beside this one and over the same channels: stages of a pipeline
(forward and backward). A replica lists what it can do (`Replica.can`), a conversation what it `needs`; a mismatch is
one line before the start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from torch import Tensor

from .transport import PeerId
from .work import Begin, Update, Work


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A completed exchange between peers, for the records. `version`: its number; `step`: local steps of a peer so far
    in the whole run. `loss`: as the peers have agreed on it, or, where they agree on none (gossip, parameter server),
    that of this peer's own steps; NaN: unknown. `steps` and `compute_s`: of this peer since the last outcome; in map
    and reduce `steps` counts partitions. `evaluate_s`: of evaluating the model after this exchange. The other seconds:
    see `Meter`. `members`: how many peers took part: the members of a round's view, a gossiping peer and the neighbours
    whose vectors it took, or the workers of a parameter server; `waited_for`: the peer that took most of `wait_s`, of a
    parameter server the worker that was waited for last; None: no such peer. `details`: the conversation's own numbers,
    by the names of its record columns. `received_from`: bytes of models, as encoded, that came from each peer since the
    last outcome; empty: none, or the conversation does not report it. `counts`: the conversation's own counts since the
    last outcome, by name and key. `metrics`: of the model after this exchange; empty: this peer has not evaluated it.
    `steps_left`: local steps of each peer until the run ends, as far as is known; None: unknown, or the conversation
    does not report it. `at_s`: when it was made, on the loop's clock, if its record may be written much later; None:
    with its record. `caught_up`: this peer's update was not in the exchange. `model_bytes`: size of the values that
    this peer exchanged, before a codec, or that it holds as a server; 0: none, or the conversation does not report it.
    `last`: no exchange follows. `note`: for the user, reported once in a run."""

    version: int
    step: int
    loss: float
    members: int
    steps: int
    compute_s: float
    wait_s: float = 0.0
    transfer_s: float = 0.0
    hidden_s: float = 0.0
    evaluate_s: float = 0.0
    metrics: Mapping[str, float] = field(default_factory=dict)
    waited_for: PeerId | None = None
    details: Mapping[str, float] = field(default_factory=dict)
    received_from: Mapping[PeerId, int] = field(default_factory=dict)
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    steps_left: int | None = None
    at_s: float | None = None
    caught_up: bool = False
    model_bytes: int = 0
    last: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True)
class Position:
    """The content of a checkpoint: the last agreed `vector` [n], this peer's own if `own_model`, or empty [0] of a
    server; other `tensors` and `numbers`, by their names in the checkpoint; and the number of exchanges that led to it
    (`version`). `begin`: from where the replica goes on; an `Update`: the replica must be saved as it was when it
    brought that update, because its exchange is not over. `grown`: of `vector`, see `Load`. `own_model`: the peers
    agree on no model, each keeps one of its own. Tensors are not copied; of a model in shared memory they change."""

    version: int
    vector: Tensor
    tensors: Mapping[str, Tensor]
    numbers: Mapping[str, Any]
    begin: Begin | Update
    grown: tuple[str, ...] = ()
    own_model: bool = False


@dataclass(frozen=True, slots=True)
class End:
    """The reason why a run is over. `by`: the name of the setting that ended it, e.g. "steps"; `why`: in words for the
    user."""

    by: str
    why: str

    @classmethod
    def by_steps(cls, step: int, steps: int | None) -> End | None:
        """The end, by the setting "steps", after `step` local steps of a run of `steps`; None: the run is not over by
        them, or has no such end (`steps` is None)."""
        over = steps is not None and step >= steps
        return cls("steps", f"the run has come to local step {step:,}") if over else None


Came = Literal["started", "joined", "resumed"]
"""How a peer entered a run."""


class Conversation(Protocol):
    """One peer's side of an algorithm. All methods run on the event loop. They raise MembershipError and PeerLost where
    this peer cannot continue, and ValueError for an update that cannot be exchanged."""

    @property
    def needs(self) -> frozenset[str]:
        """The kinds of work that a replica must be able to do, or the peer is refused before the start: some of
        "steps", "gradients", "queries", "evaluation". Kinds that are checked where the conversation is made need not be
        among them."""
        ...

    @property
    def version(self) -> int:
        """The number of the last exchange that is over on this peer; 0: none is. Where exchanges are common rounds,
        those that this peer has missed count too."""
        ...

    @property
    def bytes_shared(self) -> int:
        """Bytes that this peer has written to shared memory for others, and read there."""
        ...

    async def enter(self, contact: PeerId | None, steps: int) -> Came:
        """Join the run through the peer `contact`, or found it (None), and wait until it can begin. Starts the run's
        clock, and returns how this peer entered. `steps`: local steps that the replica has taken since the position
        from which it was resumed."""
        ...

    async def next(self) -> Work | None:
        """Wait for the next work; None: there is no more work for this peer."""
        ...

    async def bring(self, update: Update) -> Outcome | None:
        """Bring the update of the last work. Returns the outcome of an exchange that is over now; None: no exchange is
        over yet, and a later call returns its outcome."""
        ...

    async def finish(self) -> End | None:
        """Called after the last work: wait until no other peer needs this one any more; if the replica ended before the
        run did, perhaps only for a limited time. The caller must then call `next` again, which may give an evaluation.
        Returns why the run is over; None: it goes on without this peer, or the conversation does not report it."""
        ...

    async def leave(self, why: str) -> None:
        """Leave the run before it is over, and tell the other peers `why`; they go on."""
        ...

    def position(self) -> Position:
        """The content of a checkpoint. May be called at any moment."""
        ...

    async def settle(self) -> Sequence[Outcome]:
        """Called before the last checkpoint when this peer stops before the run is over, or its training failed: cancel
        the exchange that is under way behind local steps, and wait for that. Returns the outcomes, in order, of the
        exchanges that this peer has finished and that `bring` has not returned, as their models were to be evaluated
        first or they went on behind local steps."""
        ...

    def close(self) -> None:
        """Cancel everything at once, without waiting for other peers."""
        ...
