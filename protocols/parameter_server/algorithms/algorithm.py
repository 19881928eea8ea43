"""The ports of the parameter server's algorithms: `Algorithm`, whose workers take turns of local steps, `MapReduce`,
whose workers map partitions of the data, and `Shared`, whose workers take local steps in one memory, without servers.
`Rule` is the servers' part of the first two.

A worker's turn: begin from the pulled values, take `period` local steps, push. The number of turns that a worker has
taken is its clock. A server gathers the pushes to a range, a slice of the model's vector, until the gathering is
`full`, and then applies

    step(values, sum of weight * pushed / divisor)

with its server function, which the user chooses.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor

from ....aggregation.consistency import Consistency
from ....aggregation.server.function import ServerFunction
from ...shared_memory.common_vector import CommonVector
from ...work import Begin, Load, Share


class Rule(Protocol):
    """The servers' part of an algorithm: the weight of each push, the number of pushes that make an update, and the
    divisor of their sum. The server function that applies it is the user's choice; `usual` has its default. A rule
    holds no state of a run, so all peers may share one object."""

    @property
    def period(self) -> int:
        """The number of local steps in a turn."""
        ...

    @property
    def usual(self) -> tuple[str, str]:
        """The consistency and the server function that are taken where the user chooses none, each as the text that a
        user would write."""
        ...

    @property
    def by_steps(self) -> bool:
        """Whether a server gathers the pushes of one step, to which each worker pushes once; False: it gathers pushes
        in the order of their arrival, whichever step they are of."""
        ...

    def weight(self, staleness: int, workers: int) -> float:
        """The factor by which a server multiplies a push. `staleness`: the number of updates of the range since the
        values that the worker had pulled; `workers`: how many workers take part. If not `by_steps`, it is not asked for
        ranges of averaged buffers: their factor is 1 / `workers`."""
        ...

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        """Whether `gathered` pushes are enough for an update. `missing`: the number of workers that may still add a
        push; `workers`: how many take part."""
        ...

    def divisor(self, gathered: int) -> float:
        """The number by which the server divides the sum of `gathered` pushes."""
        ...


class Algorithm(Rule, Protocol):
    """An algorithm of local steps, as functions of a worker's state."""

    @property
    def pulls_every(self) -> int:
        """The number of turns from one pull to the next; 1: a worker pulls in every turn."""
        ...

    @property
    def meets(self) -> bool:
        """Whether a worker pulls at the end of a turn, right before it pushes (as elastic averaging does); False: it
        pulls at the beginning, before its local steps."""
        ...

    @property
    def warm_start(self) -> int:
        """The number of updates that the first worker makes before the others begin; 0: all begin together."""
        ...

    def under(self, consistency: Consistency) -> Algorithm:
        """The algorithm that runs with this consistency: this one, or a variant of it. Raises ValueError when the two
        do not go together."""
        ...

    def begin(self, pulled: Tensor, own: Tensor | None) -> Begin:
        """The beginning of a worker's turn: the model that its replica loads before the local steps. `pulled` [n]: the
        values that it has just pulled; `own` [n]: its model after its last turn, of a checkpoint too; None: it has
        taken none, or none since it came to a run that had begun."""
        ...

    def change(self, pulled: Tensor, begun: Tensor, after: Tensor) -> Tensor:
        """The change [n] of which a worker makes its push: as it is, or as a gradient (`ServerFunction.takes`), and
        filtered if the run has filters. `pulled` [n]: the values that it pulled last; `begun`, `after` [n]: its model
        before and after the local steps of the turn."""
        ...

    def after(self, pulled: Tensor, after: Tensor, change: Tensor) -> Tensor:
        """The worker's model [n] with which it ends a turn. `pulled` [n]: the values that it pulled last; `after` [n]:
        its model after the local steps; `change` [n]: the result of `change`, whatever filters keep back of it."""
        ...


@runtime_checkable
class MapReduce(Rule, Protocol):
    """An algorithm of map and reduce. In each step workers map every partition of the data to one push, and an update
    takes one push of each partition. `n`: the number of elements of the model's vector."""

    @property
    def steps(self) -> int | None:
        """The number of steps after which the algorithm is done; None: it runs for as many as the user asks for."""
        ...

    def under(self, consistency: Consistency) -> MapReduce:
        """This algorithm. Raises ValueError when it does not go with this consistency."""
        ...

    @property
    def keeps(self) -> ServerFunction | None:
        """The server function that servers of this algorithm always use; None: the user may choose among those that
        `check` takes."""
        ...

    @property
    def of_loss(self) -> bool:
        """Whether a worker maps the rows to the sum of the task's loss and its gradient; False: to the sums of its
        query."""
        ...

    @property
    def coordinated(self) -> bool:
        """Whether a coordinator gives out the partitions, and orders after each update what the values become."""
        ...

    def partitions(self, workers: int) -> int:
        """The number of partitions of the data, in a run that begins with so many `workers`."""
        ...

    def check(self, function: ServerFunction) -> None:
        """Raises ValueError when the servers cannot apply its pushes with `function`."""
        ...

    def start(self, vector: Tensor) -> Tensor:
        """The values [k] with which the servers begin. `vector` [n]: the initial model; the result may be `vector`
        itself."""
        ...

    def push(self, sums: Tensor, n: int) -> Tensor:
        """The push [k] for one partition. `sums`: the elements that the query returned, summed over the rows of the
        partition; `n`: elements of the model's vector. Raises ValueError when their number is not the one that the
        algorithm needs."""
        ...

    def model(self, values: Tensor, begun: Tensor, steps: int) -> Tensor:
        """The model [n] that the servers' `values` [k] stand for after `steps` steps. `begun` [n]: this worker's model
        so far, before its first step the initial one. Raises ValueError when no model can be computed from them."""
        ...


@runtime_checkable
class Shared(Protocol):
    """An algorithm of workers on one machine whose models lie in the same memory, so that nothing is pushed and pulled,
    and there are no servers."""

    @property
    def period(self) -> int:
        """The number of local steps in a turn."""
        ...

    @property
    def usual(self) -> tuple[str, str]:
        """The names of the consistency and of the server function that are taken where the user chooses none (as
        `Rule`). No server applies the function here."""
        ...

    def under(self, consistency: Consistency) -> Shared:
        """This algorithm. Raises ValueError when it does not go with this consistency."""
        ...

    def share(self, memory: CommonVector) -> Share:
        """The beginning of a worker's works, by which its replica's model lies in the shared `memory` from then on."""
        ...


def weight_among(rule: Rule, staleness: int, left: int, workers: int) -> float:
    """The factor by which a server multiplies a push so that it weighs as one of as many pushes as there are `workers`,
    although the rule will divide the sum by the number of pushes of the `left` ones that take more steps. `staleness`:
    as for `Rule.weight`."""
    if left == workers:
        return rule.weight(staleness, workers)

    def divisor(of: int) -> float:
        return rule.divisor(next(many for many in range(1, of + 1) if rule.full(many, of - many, of)))

    return rule.weight(staleness, workers) * divisor(left) / divisor(workers)


class OfChanges:
    """Base class with the usual worker's part, of which subclasses replace some: pull in every turn, take one local
    step from the pulled model, push the change."""

    meets = False
    warm_start = 0

    @property
    def period(self) -> int:
        return 1

    @property
    def pulls_every(self) -> int:
        return 1

    def begin(self, pulled: Tensor, own: Tensor | None) -> Begin:
        return Load(pulled)

    def change(self, pulled: Tensor, begun: Tensor, after: Tensor) -> Tensor:
        return after - begun

    def after(self, pulled: Tensor, after: Tensor, change: Tensor) -> Tensor:
        return after


class OnArrival(OfChanges):
    """Base class of algorithms whose servers apply each push as it arrives, by itself, unless a subclass has them wait
    for more."""

    by_steps = False

    def full(self, gathered: int, missing: int, workers: int) -> bool:
        return True

    def divisor(self, gathered: int) -> float:
        return 1.0
