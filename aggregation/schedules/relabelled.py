"""Another schedule with the ranks in another order, which changes the pairs of ranks that exchange messages.

Cost and failures: as in the other schedule.
"""

from dataclasses import dataclass

from .schedule import Receipt, Schedule, Step, Transfer


@dataclass(frozen=True, slots=True)
class Relabelled:
    """``schedule`` with its ranks renamed, for one world size: rank ``order[place]`` takes the steps that ``schedule``
    gives to rank ``place``."""

    schedule: Schedule
    order: tuple[int, ...]

    @property
    def name(self) -> str:
        return self.schedule.name

    def parts(self, world: int) -> int:
        return self.schedule.parts(world)

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        return tuple(
            Step(
                tuple(Transfer(self.order[sent.peer], sent.part) for sent in step.send),
                tuple(Receipt(self.order[got.peer], got.part, got.op) for got in step.receive),
            )
            for step in self.schedule.steps(self.order.index(rank), world)
        )
