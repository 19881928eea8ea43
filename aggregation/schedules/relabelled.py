"""Another schedule with the ranks in another order, so that what goes between neighbours goes between other ranks.

Cost, loss, lateness, death: the other schedule's.
"""

from dataclasses import dataclass

from .schedule import Receipt, Schedule, Step, Transfer


@dataclass(frozen=True, slots=True)
class Relabelled:
    """``order[place]`` is the rank that does what ``schedule`` has for the rank ``place``. Of one world only."""

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
