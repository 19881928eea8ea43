"""The steps and time that this peer spent on a round, and the round's record in the form of all conversations."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..conversation import Outcome
from ..work import Update
from . import rounds


@dataclass(slots=True)
class Spent:
    """This peer's local steps since its last outcome, and the seconds that they took."""

    steps: int = 0
    compute_s: float = 0.0

    def add(self, update: Update, steps: int) -> None:
        """Add the local steps of a work, `steps` many, and the seconds of its `update`."""
        self.steps += steps
        self.compute_s += update.seconds


def outcome_of(
    done: rounds.Outcome, period: int, spent: Spent, *, missed: int, left: int | None, last: bool, told: bool, note: str
) -> Outcome:
    """The outcome of a round in the form that all conversations share. `done`: the round, which had this `period`;
    `spent`: this peer's steps since the outcome before; `missed`: the round's steps that it has not taken; `left`:
    local steps until the run ends (`Ends.left`); `told`: whether the replica has reported its loss, without which the
    agreed loss is meaningless and becomes NaN, as it does where this peer caught up with the round; `note`: a remark
    for the record."""
    return Outcome(
        version=done.state.round,
        step=done.state.step - (0 if done.caught_up else missed),
        loss=done.loss if told and not done.caught_up else math.nan,
        members=done.members,
        steps=spent.steps,
        compute_s=spent.compute_s + done.compute_s,
        wait_s=done.wait_s,
        transfer_s=done.transfer_s,
        hidden_s=done.hidden_s,
        waited_for=done.waited_for,
        details={"round": done.state.round, "generation": done.generation, "period": period - missed},
        steps_left=left,
        caught_up=done.caught_up,
        model_bytes=done.model_bytes,
        last=last,
        note=note,
    )
