"""Terms: the settings of a membership that all peers of a run share."""

from __future__ import annotations

import math
from dataclasses import dataclass

CONSTANTS = " constants of hash "
"""The words before the hash of a model's constants in its description."""
_ALL_THE_SAME = "load the same ones on all peers, or seed PyTorch before the model is made"


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms of one run: equal on all peers, except for the words of `model`.

    `run`: its name; only peers of the same run meet. `layout`, `model`: the digest and the description of the model
    that they train; `source`: where the model is written, in words: "task file" or "script". `founders`: how many peers
    must gather before the run starts; `servers`: how many of them have a role, such as that of a server. `quorum`: how
    many members are enough to decide a view once the run has started; None: more than half. `give_up_after_s`: seconds
    to wait for members out of reach when too few are left to decide a view, or to keep trying to join again; None: no
    limit. `ends_together`: the run is over as soon as one member has finished; False: each finishes by itself, and the
    run is over when all have. `trains_on`: members train on where too few are left to decide a view; False: they wait.
    """

    run: str
    layout: str
    model: str
    founders: int
    servers: int = 0
    source: str = "task file"
    quorum: int | None = None
    give_up_after_s: float | None = None
    ends_together: bool = True
    trains_on: bool = False

    def other_model(self, model: str) -> str:
        """The reason, in words, for which a newcomer whose model has another layout is refused. `model`: the
        description of the newcomer's model."""
        (own, _, values), (others, _, other_values) = self.model.partition(CONSTANTS), model.partition(CONSTANTS)
        if other_values and own == others:
            return f"frozen weights or integer buffers differ, by hash {other_values}, {values}: {_ALL_THE_SAME}"
        return f"the models have different layouts: {model}, {self.model}; is it the same {self.source}?"

    @property
    def limit_s(self) -> float:
        """`give_up_after_s` as a number, infinite for None."""
        return math.inf if self.give_up_after_s is None else self.give_up_after_s

    @property
    def limit_in_words(self) -> str:
        """A clause for the user, such as " for at most 30 s", with a space before it; "" if `give_up_after_s` is
        None."""
        return "" if self.give_up_after_s is None else f" for at most {self.give_up_after_s:g} s"
