"""The port of server functions.

A server function is pure: it makes new values and a new state from the old ones and from what was pushed, and writes
into none of its arguments. It acts on each element by itself, so a range of a vector has the same bits as if the whole
vector were updated, and rows [k, width] of a table the same as if each were updated alone. Vectors are [..., n].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Protocol

from torch import Tensor

State = Mapping[str, Tensor]
"""A server function's state: tensors by name, each of the shape of the values [..., n], or [...] (a count). A function
that is for ranges of vectors alone may keep numbers of a range, in a tensor of another shape (`lbfgs`)."""
Takes = Literal["change", "gradient"]


class ServerFunction(Protocol):
    """A function by which a parameter server changes its values at each push. It is pure: its state is an argument and
    a result."""

    @property
    def takes(self) -> Takes:
        """The kind of push that the function takes, after a worker's local steps from x to y: the "change" y - x, or
        the "gradient" (x - y) / learning rate. With a plain SGD in the task the latter is the sum of the gradients of
        these steps."""
        ...

    def start(self, values: Tensor) -> State:
        """The state before the first push, for values [..., n]. Each of its tensors has memory of its own, shared
        neither with another nor with `values`, because a server that fetches a copy writes into them."""
        ...

    def step(self, values: Tensor, pushed: Tensor, state: State) -> tuple[Tensor, State]:
        """The new values [..., n] and the new state, after a worker has pushed `pushed` [..., n]. Raises ValueError
        where shapes or dtypes differ, or where the state is another function's."""
        ...


def check_step(values: Tensor, pushed: Tensor, state: State, *names: str) -> None:
    """Raises ValueError unless the state has exactly the tensors `names`, and these and `pushed` have the dtype of
    `values` and its shape [..., n] (a state's tensor may also be [...])."""
    if not (state or names) and pushed.dtype == values.dtype and pushed.shape == values.shape:
        return
    if set(state) != set(names):
        have = ", ".join(sorted(state)) or "nothing"
        raise ValueError(f"this server function keeps {', '.join(names) or 'no state'}, the state has {have}")
    for name, tensor in (("pushed", pushed), *state.items()):
        count = name != "pushed" and tensor.shape == values.shape[:-1]
        if tensor.dtype != values.dtype or (tensor.shape != values.shape and not count):
            got, want = f"{tensor.dtype} of {tuple(tensor.shape)}", f"{values.dtype} of {tuple(values.shape)}"
            raise ValueError(f"{name} is {got}, the values are {want}")


def check_rate(rate: float, most: float = 100.0) -> None:
    """Raises ValueError unless 0 < rate <= `most`."""
    if not 0 < rate <= most:
        raise ValueError(f"a learning rate is above 0 and at most {most:g}, got {rate:g}")
