"""A broken schedule is caught: what `prove` lets pass is an allreduce."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.schedule import Op, Receipt, Schedule, Step, Transfer
from samovar.aggregation.schedules.verify import ScheduleError, prove

every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)

Plan = list[list[Step]]


@dataclass
class Planted:
    """A schedule out of a literal plan: ``plan[rank][step]``."""

    plan: Plan
    pieces: int
    name: str = "planted"

    def parts(self, world: int) -> int:
        return self.pieces

    def steps(self, rank: int, world: int) -> tuple[Step, ...]:
        return tuple(self.plan[rank])


def plan_of(schedule: Schedule, world: int) -> Plan:
    return [list(schedule.steps(rank, world)) for rank in range(world)]


def broken_ring(rank: int, step: int, **change: object) -> Planted:
    plan = plan_of(SCHEDULES["ring"], 4)
    plan[rank][step] = replace(plan[rank][step], **change)
    return Planted(plan, 4)


def caught(schedule: Schedule, world: int, message: str) -> ScheduleError:
    with pytest.raises(ScheduleError, match=message) as error:
        prove(schedule, world)
    assert error.value.world == world
    return error.value


def test_a_part_reduced_twice_is_caught() -> None:
    # The first step of the all-gather adds what it should copy.
    receipt = SCHEDULES["ring"].steps(2, 4)[3].receive[0]
    error = caught(broken_ring(2, 3, receive=(replace(receipt, op=Op.ADD),)), 4, "reduced twice")
    assert (error.rank, error.step, error.part) == (2, 3, receipt.part)
    assert str(error).endswith(f"(world 4, rank 2, step 3, part {receipt.part})")


def test_a_part_missing_at_the_end_is_caught() -> None:
    planted = broken_ring(1, 5, receive=())
    lost = SCHEDULES["ring"].steps(1, 4)[5].receive[0].part
    planted.plan[0][5] = replace(planted.plan[0][5], send=())
    error = caught(planted, 4, "missing at the end")
    assert (error.rank, error.step, error.part) == (1, None, lost)


def test_a_send_without_receiver_is_caught() -> None:
    error = caught(broken_ring(1, 2, receive=()), 4, "send to rank 1 has no receiver")
    assert (error.rank, error.step) == (0, 2)


def test_a_receipt_without_sender_is_caught() -> None:
    error = caught(broken_ring(1, 2, send=()), 4, "receipt from rank 1 has no sender")
    assert (error.rank, error.step) == (2, 2)


def test_a_send_that_arrives_in_another_step_is_caught() -> None:
    plan = plan_of(SCHEDULES["ring"], 4)
    plan[3].insert(0, Step())
    caught(Planted(plan, 4), 4, "no receiver")


def test_a_stale_copy_is_caught() -> None:
    # The first step of the reduce-scatter copies what it should add: rank 1 loses its own contribution.
    receipt = SCHEDULES["ring"].steps(1, 4)[0].receive[0]
    error = caught(broken_ring(1, 0, receive=(replace(receipt, op=Op.COPY),)), 4, "loses the contributions of ranks 1 ")
    assert (error.rank, error.step, error.part) == (1, 0, receipt.part)


def test_sums_in_an_order_of_their_own_are_caught() -> None:
    # Everybody sends to everybody: a correct sum, but (a+b)+c on one rank and (b+c)+a on another.
    others = [[(rank + 1) % 3, (rank + 2) % 3] for rank in range(3)]
    plan = [
        [Step(tuple(Transfer(peer, 0) for peer in peers), tuple(Receipt(peer, 0, Op.ADD) for peer in peers))]
        for peers in others
    ]
    assert caught(Planted(plan, 1), 3, "another order").rank == 1


def test_two_peers_that_swap_need_no_order() -> None:
    plan = [[Step((Transfer(1 - rank, 0),), (Receipt(1 - rank, 0, Op.ADD),))] for rank in range(2)]
    assert prove(Planted(plan, 1), 2).parts_added == (1, 1)


@pytest.mark.parametrize(
    ("peer", "part", "message"),
    [
        (4, 0, "cannot be a partner"),
        (-1, 0, "cannot be a partner"),
        (0, 0, "cannot be a partner"),
        (1, 4, "only 4 parts"),
    ],
)
def test_a_transfer_to_nowhere_is_caught(peer: int, part: int, message: str) -> None:
    error = caught(broken_ring(0, 1, send=(Transfer(peer, part),)), 4, message)
    assert (error.rank, error.step, error.part) == (0, 1, part)


def test_a_part_sent_twice_is_caught() -> None:
    plan = plan_of(SCHEDULES["ring"], 2)
    plan[0][1] = replace(plan[0][1], send=plan[0][1].send * 2)
    plan[1][1] = replace(plan[1][1], receive=plan[1][1].receive * 2)
    caught(Planted(plan, 2), 2, "is there 2 times")


def without(items: tuple, item: object) -> tuple:
    return tuple(other for other in items if other != item)


def drop_receipt(plan: Plan, rank: int, step: int, receipt: Receipt) -> None:
    plan[rank][step] = replace(plan[rank][step], receive=without(plan[rank][step].receive, receipt))


def drop_transfer(plan: Plan, rank: int, step: int, receipt: Receipt) -> None:
    sender = plan[receipt.peer]
    sender[step] = replace(sender[step], send=without(sender[step].send, Transfer(rank, receipt.part)))


def drop_both(plan: Plan, rank: int, step: int, receipt: Receipt) -> None:
    drop_receipt(plan, rank, step, receipt)
    drop_transfer(plan, rank, step, receipt)


def flip(plan: Plan, rank: int, step: int, receipt: Receipt) -> None:
    flipped = replace(receipt, op=Op.COPY if receipt.op is Op.ADD else Op.ADD)
    drop_receipt(plan, rank, step, receipt)
    plan[rank][step] = replace(plan[rank][step], receive=(*plan[rank][step].receive, flipped))


@every_schedule
@settings(deadline=None)
@given(
    world=st.integers(2, 13), breakage=st.sampled_from([drop_receipt, drop_transfer, drop_both, flip]), data=st.data()
)
def test_no_transfer_can_be_lost_or_flipped_unseen(
    schedule: Schedule, world: int, breakage: Callable[[Plan, int, int, Receipt], None], data: st.DataObject
) -> None:
    plan = plan_of(schedule, world)
    every = [
        (r, s, receipt) for r, steps in enumerate(plan) for s, step in enumerate(steps) for receipt in step.receive
    ]
    breakage(plan, *data.draw(st.sampled_from(every)))
    with pytest.raises(ScheduleError):
        prove(Planted(plan, schedule.parts(world)), world)
