"""The outer step: it applies the mean update of a round to the model.

It is an optimizer without hidden state: ``start`` makes the state, ``step`` returns the new vector and the new state.
Its gradient is the difference ``anchor - mean``, the "pseudo-gradient" of DiLoCo. A user chooses a step by name
(`parse_outer`). A new one is one class, and one line in `OUTER_STEPS`.

Vectors are [..., n]: leading axes are independent models, each with a state of its own.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from .options import made_of, number

OuterState = tuple[Tensor, ...]
RATE_MAX = 10.0


class OuterStep(Protocol):
    """A rule that turns a round's mean into the next model.

    ``anchor`` [..., n]: the vector that all peers shared when the round's local steps began; ``mean`` [..., n]: their
    weighted mean after them.
    """

    @property
    def tensors(self) -> int:
        """The number of tensors [..., n] in the step's state."""
        ...

    def start(self, vector: Tensor) -> OuterState:
        """The state before the first round, for models like ``vector`` [..., n]."""
        ...

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        """The vector from which the next round starts, and the step's state after this round. Changes none of its
        arguments. Raises ValueError where shapes or dtypes differ or the state is another step's."""
        ...


@dataclass(frozen=True, slots=True)
class Plain:
    """The outer step of plain averaging: the mean becomes the model (FedAvg, Algorithm 1; PASGD). It has no state."""

    tensors: ClassVar[int] = 0

    def start(self, vector: Tensor) -> OuterState:
        return ()

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        """Returns ``mean`` itself, not a copy, and the empty state. Raises ValueError where ``mean`` has another shape
        or dtype than ``anchor``, or the state is not empty."""
        check_step(anchor, mean, state, tensors=self.tensors)
        return mean, ()


@dataclass(frozen=True, slots=True)
class Momentum:
    """SGD with momentum on the model, with a round's displacement as the gradient.

        D = anchor - mean           the round's pseudo-gradient
        v <- momentum v + D         v = 0 before the first round
        x <- anchor - rate v                       heavy ball
        x <- anchor - rate (D + momentum v)        nesterov

    Three papers, one formula, which is that of ``torch.optim.SGD`` on D:

    - Block momentum (Chen and Huo 2016; Wang and Joshi, arXiv 1810.08313, section 5.3): u <- 0.3 u + G, x <- x - eta u,
      where eta G is the averaged step D. With v = eta u it is the heavy ball at rate 1, as long as eta stays; when eta
      changes, theirs scales what v holds of earlier rounds with it, ours does not.
    - Server momentum (FedAvgM; Reddi et al., arXiv 2003.00295): the heavy ball with any rate. Their Algorithm 2 writes
      m <- b m + (1 - b) D, x <- x - eta m: with v = m/(1 - b) that is rate = eta (1 - b).
    - DiLoCo (Douillard et al., arXiv 2311.08105): Nesterov, rate 0.7, momentum 0.9.

    In the long run a step moves the model by rate/(1 - momentum) times D: 7 times for DiLoCo. Local learning rates that
    suit plain averaging may therefore be too high.

    Each product and each sum is rounded separately, never fused, which gives the same bits on all processors. Cost: the
    memory of one more vector, and no byte on the wire, as all peers keep the same v. Raises ValueError unless
    ``momentum`` is at least 0 and below 1, and ``rate`` above 0 and at most `RATE_MAX`.
    """

    momentum: float
    rate: float = 1.0
    nesterov: bool = False

    tensors: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not 0 <= self.momentum < 1:
            raise ValueError(f"the momentum must be at least 0 and below 1, got {self.momentum:g}")
        if not 0 < self.rate <= RATE_MAX:
            raise ValueError(f"the outer learning rate must be above 0 and at most {RATE_MAX:g}, got {self.rate:g}")

    def start(self, vector: Tensor) -> OuterState:
        return (vector.new_zeros(vector.shape),)

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        check_step(anchor, mean, state, tensors=self.tensors)
        difference = anchor - mean
        velocity = (state[0] * self.momentum).add_(difference)
        moved = (velocity * self.momentum).add_(difference).mul_(self.rate) if self.nesterov else velocity * self.rate
        return moved.neg_().add_(anchor), (velocity,)


@dataclass(frozen=True, slots=True)
class OfParameters:
    """Applies the outer step `inner` to a model's parameters only. The last `buffers` elements of each row, the model's
    buffers, become the mean instead, because an extrapolated running variance can be negative."""

    inner: OuterStep
    buffers: int

    @property
    def tensors(self) -> int:
        return self.inner.tensors

    def start(self, vector: Tensor) -> OuterState:
        return self.inner.start(vector)

    def step(self, anchor: Tensor, mean: Tensor, state: OuterState) -> tuple[Tensor, OuterState]:
        vector, after = self.inner.step(anchor, mean, state)
        parameters = vector.shape[-1] - self.buffers
        vector[..., parameters:] = mean[..., parameters:]
        return vector, after


def check_step(anchor: Tensor, mean: Tensor, state: OuterState, tensors: int) -> None:
    """Raises ValueError unless ``mean`` and the ``tensors`` of the state have the shape and dtype of ``anchor``."""
    if len(state) != tensors:
        raise ValueError(f"this outer step keeps {tensors} tensors of state, got {len(state)}: another step's?")
    for tensor in (mean, *state):
        if tensor.shape != anchor.shape or tensor.dtype != anchor.dtype:
            got, want = (f"{t.dtype} of shape {tuple(t.shape)}" for t in (tensor, anchor))
            raise ValueError(f"an outer step needs vectors alike: {got} does not fit {want}")


def parse_outer(text: str) -> OuterStep:
    """The outer step that a user asks for: a name of `OUTER_STEPS`, and its options after colons.

    Raises ValueError, in one line, on an unknown name or invalid options.
    """
    return made_of(text, OUTER_STEPS, "outer step")


def _server_momentum(rate: str = "1", momentum: str = "0.9") -> OuterStep:
    """At rate 1 and without momentum it is plain averaging, to the bit."""
    wished = Momentum(number(momentum), number(rate))
    return Plain() if wished == Momentum(0.0, 1.0) else wished


OUTER_STEPS: Mapping[str, tuple[Callable[..., OuterStep], int]] = {
    "plain": (Plain, 0),
    "momentum": (lambda momentum="0.3": Momentum(number(momentum)), 1),
    "server_momentum": (_server_momentum, 2),
    "nesterov": (lambda rate="0.7", momentum="0.9": Momentum(number(momentum), number(rate), nesterov=True), 2),
}
"""Name -> a function that makes the step from its options, which are texts, and the most options it takes. The defaults
are the papers'."""
