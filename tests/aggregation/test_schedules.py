"""Every schedule is an allreduce in a world of any size, at the cost that its docstring tells."""

import pytest
import torch

from samovar.aggregation.schedules.double_tree import DoubleTree
from samovar.aggregation.schedules.hierarchical import Hierarchical
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.schedule import Op, Receipt, Schedule, Step, Transfer
from samovar.aggregation.schedules.verify import prove
from samovar.aggregation.vector import parts

WORLDS = range(1, 34)
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES)

Row = tuple[int, int, int]
"""What a rank does: messages sent, parts sent, parts added."""


def naive_cost(p: int) -> tuple[int, int, list[Row]]:
    """Steps, parts and the row of each rank, as all below."""
    return 2 * (p > 1), 1, [(p - 1, p - 1, p - 1)] + [(1, 1, 0)] * (p - 1)


def sharded_cost(p: int) -> tuple[int, int, list[Row]]:
    return 2 * (p > 1), p, [(2 * (p - 1), 2 * (p - 1), p - 1)] * p


def ring_cost(p: int) -> tuple[int, int, list[Row]]:
    return 2 * (p - 1), p, [(2 * (p - 1), 2 * (p - 1), p - 1)] * p


def halving_doubling_cost(p: int) -> tuple[int, int, list[Row]]:
    q = max(2**level for level in range(6) if 2**level <= p)
    levels, folded = q.bit_length() - 1, p - q
    alone = (2 * levels, 2 * (q - 1), q - 1)
    host = (2 * levels + 1, 2 * (q - 1) + q, q - 1 + q)
    guest = (1, q, 0)
    return 2 * levels + 2 * (folded > 0), q, [host, guest] * folded + [alone] * (p - 2 * folded)


def hierarchical_cost(p: int, q: int) -> tuple[int, int, list[Row]]:
    h = p // q
    folded = p - q * h
    alone = (2 * (q - 1) + 2 * (h - 1), 2 * (q - 1) * h + 2 * (h - 1), (q - 1) * h + h - 1)
    host = (alone[0] + 1, alone[1] + q * h, alone[2] + q * h)
    guest = (1, q * h, 0)
    rows = [alone] * (q * (h - 1)) + [host] * folded + [alone] * (q - folded) + [guest] * folded
    return alone[0] + 2 * (folded > 0), q * h, rows


def nearest_to_root(p: int) -> int:
    near = [q for q in range(1, p + 1) if p % q == 0 and p <= 4 * q * q <= 16 * p]
    return min(near, key=lambda q: abs(q - p**0.5), default=round(p**0.5))


COSTS = {
    "naive": naive_cost,
    "sharded": sharded_cost,
    "ring": ring_cost,
    "halving_doubling": halving_doubling_cost,
    "hierarchical": lambda p: hierarchical_cost(p, nearest_to_root(p)),
}


def check_cost(schedule: Schedule, p: int, expected: tuple[int, int, list[Row]]) -> None:
    cost = prove(schedule, p)
    rows = list(zip(cost.messages, cost.parts_sent, cost.parts_added, strict=True))
    assert (cost.steps, schedule.parts(p), rows) == expected


@every_schedule
@pytest.mark.parametrize("world", WORLDS)
def test_a_schedule_is_an_allreduce_at_its_stated_cost(schedule: Schedule, world: int) -> None:
    if schedule.name == "double_tree":
        check_double_tree(world)
    else:
        check_cost(schedule, world, COSTS[schedule.name](world))


def check_double_tree(p: int) -> None:
    cost = prove(DoubleTree(), p)
    assert (cost.steps, DoubleTree().parts(p)) == (2 * (p - 1).bit_length(), 2)
    assert (sum(cost.parts_sent), sum(cost.parts_added)) == (4 * (p - 1), 2 * (p - 1))
    received = [sum(len(step.receive) for step in DoubleTree().steps(rank, p)) for rank in range(p)]
    assert max(*cost.parts_sent, *received) <= 4
    assert all(messages <= sent for messages, sent in zip(cost.messages, cost.parts_sent, strict=True))


@pytest.mark.parametrize("group", [1, 2, 3, 5, 8, 40])
def test_groups_may_be_of_any_size(group: int) -> None:
    for p in WORLDS:
        check_cost(Hierarchical(group), p, hierarchical_cost(p, min(group, p)))


def test_a_group_is_at_least_one_rank() -> None:
    with pytest.raises(ValueError, match="at least one rank, got 0"):
        Hierarchical(0)


def test_groups_are_near_the_root_of_the_world_and_leave_no_rank_over_if_they_can() -> None:
    sizes = {world: prove(Hierarchical(), world).steps for world in (16, 12, 7)}
    assert sizes == {16: 2 * 3 + 2 * 3, 12: 2 * 2 + 2 * 3, 7: 1 + 2 * 2 + 2 * 1 + 1}
    assert [nearest_to_root(world) for world in (16, 12, 7, 31)] == [4, 3, 3, 6]


@pytest.mark.parametrize("world", range(2, 34))
def test_only_rank_0_of_an_odd_world_is_inner_in_both_trees(world: int) -> None:
    """Inner: with somebody below it, from whom it gets what it adds."""
    inner = [
        {receipt.part for step in DoubleTree().steps(rank, world) for receipt in step.receive if receipt.op is Op.ADD}
        for rank in range(world)
    ]
    assert [rank for rank in range(world) if inner[rank] == {0, 1}] == [0] * (world % 2)
    assert sum(len(trees) for trees in inner) == world // 2 * 2 + 2 * (world % 2)


def test_the_double_tree_by_hand_for_four() -> None:
    # 0 <- 2 <- 1, 3 for the first half, and mirrored 3 <- 1 <- 2, 0 for the second.
    assert DoubleTree().steps(1, 4) == (
        Step((Transfer(2, 0),), (Receipt(2, 1, Op.ADD), Receipt(0, 1, Op.ADD))),
        Step((Transfer(3, 1),)),
        Step((), (Receipt(3, 1, Op.COPY),)),
        Step((Transfer(2, 1), Transfer(0, 1)), (Receipt(2, 0, Op.COPY),)),
    )


def execute(schedule: Schedule, vectors: list[torch.Tensor]) -> list[torch.Tensor]:
    """The plainest executor: whole parts, one step at a time, on copies."""
    world, vectors = len(vectors), [vector.clone() for vector in vectors]
    cut = parts(vectors[0].numel(), schedule.parts(world))
    for moves in zip(*(schedule.steps(rank, world) for rank in range(world)), strict=True):
        before = [vector.clone() for vector in vectors]
        for vector, step in zip(vectors, moves, strict=True):
            for receipt in step.receive:
                span = slice(*cut[receipt.part])
                arrived = before[receipt.peer][span]
                vector[span] = vector[span] + arrived if receipt.op is Op.ADD else arrived
    return vectors


@every_schedule
def test_the_name_of_a_schedule_is_its_key(schedule: Schedule) -> None:
    assert SCHEDULES[schedule.name] is schedule


@every_schedule
@pytest.mark.parametrize("size", [5, 67])
def test_the_result_is_the_sum_and_the_same_bits_on_all_ranks(schedule: Schedule, size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    for world in WORLDS:
        vectors = [torch.randn(size, generator=generator) for _ in range(world)]
        results = execute(schedule, vectors)
        exact = torch.stack(vectors).double().sum(0)
        scale = torch.stack(vectors).double().abs().sum(0)
        assert ((results[0].double() - exact).abs() <= 1e-6 * scale).all()
        assert all(torch.equal(result.view(torch.int32), results[0].view(torch.int32)) for result in results)


@every_schedule
def test_a_world_of_one_rank_has_no_steps(schedule: Schedule) -> None:
    assert schedule.steps(0, 1) == ()
    assert prove(schedule, 1).steps == 0


@every_schedule
@pytest.mark.parametrize(("rank", "world"), [(-1, 2), (2, 2), (0, 0), (0, -1)])
def test_a_rank_outside_the_world_is_refused(schedule: Schedule, rank: int, world: int) -> None:
    with pytest.raises(ValueError, match="there is no rank"):
        schedule.steps(rank, world)


def test_the_ring_fills_every_link_in_every_step_and_uses_no_other() -> None:
    for step in (step for rank in range(7) for step in SCHEDULES["ring"].steps(rank, 7)):
        assert len(step.send) == len(step.receive) == 1
    assert {(r, s.send[0].peer) for r in range(7) for s in SCHEDULES["ring"].steps(r, 7)} == {
        (rank, (rank + 1) % 7) for rank in range(7)
    }


def test_halving_doubling_by_hand_for_four() -> None:
    assert SCHEDULES["halving_doubling"].steps(2, 4) == (
        Step((Transfer(3, 2), Transfer(3, 3)), (Receipt(3, 0, Op.ADD), Receipt(3, 1, Op.ADD))),
        Step((Transfer(0, 0),), (Receipt(0, 1, Op.ADD),)),
        Step((Transfer(0, 1),), (Receipt(0, 0, Op.COPY),)),
        Step((Transfer(3, 0), Transfer(3, 1)), (Receipt(3, 2, Op.COPY), Receipt(3, 3, Op.COPY))),
    )
