"""Rows of tables: their sums, their blocks, and server functions that act on each row by itself."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from samovar.aggregation.rows import Rows, ascending, share
from samovar.aggregation.server.registry import SERVER_FUNCTIONS, parse_server_function

ids = st.lists(st.integers(0, 40), unique=True).map(lambda found: torch.tensor(sorted(found), dtype=torch.int64))


def rows_of(numbers: torch.Tensor, seed: int) -> Rows:
    return Rows(numbers, torch.randn(len(numbers), 3, generator=torch.Generator().manual_seed(seed)))


def dense(rows: Rows) -> torch.Tensor:
    table = torch.zeros(41, 3)
    table[rows.ids] = rows.values
    return table


@given(ids, ids)
def test_a_sum_of_rows_is_the_sum_of_the_tables(one: torch.Tensor, other: torch.Tensor) -> None:
    first, second = rows_of(one, 1), rows_of(other, 2)
    both = first.plus(second)
    assert ascending(both.ids, 41)
    assert {*both.ids.tolist()} == {*one.tolist(), *other.tolist()}
    assert torch.equal(dense(both), dense(first) + dense(second))


@given(ids, st.integers(1, 9))
def test_each_row_is_in_one_block_and_neighbours_are_in_different_ones(numbers: torch.Tensor, blocks: int) -> None:
    order, counts = share(numbers, blocks)
    assert sorted(order.tolist()) == list(range(len(numbers)))
    for block, some in enumerate(torch.split(order, counts)):
        assert (numbers[some] % blocks == block).all()
        assert ascending(numbers[some] // blocks, 41), "in order within the block"


@pytest.mark.parametrize("wrong", [[1, 1], [2, 1], [-1, 3], [3, 41]])
def test_numbers_out_of_order_or_of_range_are_no_rows(wrong: list[int]) -> None:
    assert not ascending(torch.tensor(wrong), 41)


@pytest.mark.parametrize("name", SERVER_FUNCTIONS)
def test_a_row_has_the_bits_of_one_that_is_updated_alone(name: str) -> None:
    function, chance = parse_server_function(name), torch.Generator().manual_seed(3)
    table = torch.randn(5, 4, generator=chance)
    state = function.start(table)
    alone = [(row.clone(), function.start(row)) for row in table]
    for touched in ([0, 1, 3], [3], [1, 2, 3, 4], [0, 3]):
        pushed = torch.randn(len(touched), 4, generator=chance)
        values, after = function.step(table[touched], pushed, {key: kept[touched] for key, kept in state.items()})
        table[touched] = values
        for key, kept in after.items():
            state[key][touched] = kept
        for place, row in enumerate(touched):
            alone[row] = function.step(alone[row][0], pushed[place], alone[row][1])
    assert all(torch.allclose(table[row], values, rtol=0, atol=1e-7) for row, (values, _) in enumerate(alone))
