"""The open questions of a peer for its neighbours' vectors, and the checks of the answers' numbers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..channel import Envelope
from ..collectives.bound import WrongNumbers
from ..transport import PeerId
from .lent import Shown
from .messages import Form, Given, Published
from .periods import Told

_IDLE_ROUNDS = 64
"""The most rounds without a local step of its own that a peer may claim."""


@dataclass(slots=True, eq=False)
class Question:
    """An open question for a neighbour's vector. `round`, `form`, `meets`, `looks`: as in `messages.Want`. `number`:
    the question's own, 0 until it is asked; `answer`, `whole`: the task of a question that was asked ahead, which
    receives the answer alone, or all of the vector, both None: it was not asked ahead; `spares`: if the answer cannot
    be used, the vector is not asked for whole; `is_answered`: an answer has come; `is_cut`: the link has ended since,
    and the peer may come back as another process, so no difference may lead from the vector; `given` is called when
    there is an answer."""

    round: int
    form: Form = Form.DIFFERENCE
    meets: int = 0
    looks: bool = False
    spares: bool = False
    number: int = 0
    answer: asyncio.Task[Envelope] | None = None
    whole: asyncio.Task[Published | Shown] | None = None
    is_answered: bool = False
    is_cut: bool = False
    given: Callable[[], None] = lambda: None

    @property
    def task(self) -> asyncio.Task[Envelope] | asyncio.Task[Published | Shown]:
        """The task that receives the answer, or all of the vector. Only of a question that was asked ahead."""
        task = self.whole or self.answer
        assert task is not None
        return task


def checked(answer: Envelope, question: Question, steps: int | None, *, encodes: bool) -> tuple[Given, Told]:
    """Check an answer to `question`, and return its message and the numbers in it. `steps`: local steps of the run;
    None: unknown. `encodes`: whether vectors are sent as encoded differences. Raises WrongNumbers for numbers that
    cannot be right (`check_told`), for a round before the one asked for unless the peer takes no more steps, and for a
    form that was not asked for. The answer's payload is then released (`Envelope.done`); otherwise the caller has to
    release it."""
    found: Given = answer.message
    told = Told(found.loss, found.learning_rate, found.motion, found.links)
    forms: list[Form] = [question.form]
    if question.form == Form.DIFFERENCE:
        forms = [*Form] if encodes else [Form.WHOLE]
    try:
        check_told(answer.sender, told, found.round, found.step, steps)
        if found.round < question.round and not found.last:
            raise WrongNumbers(answer.sender, f"it gave round {found.round} when round {question.round} was wanted")
        if not found.number and found.form not in forms:
            raise WrongNumbers(answer.sender, f"it gave a vector in the form {found.form}, which was not wanted")
    except WrongNumbers:
        answer.done()
        raise
    return found, told


def check_told(peer: PeerId, told: Told, round: int, step: int, steps: int | None) -> None:
    """Check the numbers that `peer` has told with a vector: `round`, the vector's; `step`, the local steps that `peer`
    has taken in the run; and `told`. `steps`: local steps of the run; None: unknown, and `step` has no limit. Raises
    WrongNumbers unless `told` makes sense (`Told.makes_sense`), neither number is negative, `round` is at most 64 above
    `step` (a peer seldom mixes without a step of its own), and `step` is at most `steps`."""
    if not told.makes_sense:
        raise WrongNumbers(peer, "it told numbers of its local steps that make no sense")
    if step < 0 or round < 0 or round > step + _IDLE_ROUNDS:
        raise WrongNumbers(peer, f"it told of round {round} after {step} local steps")
    if steps is not None and step > steps:
        raise WrongNumbers(peer, f"it told of {step} local steps in a run of {steps}")
