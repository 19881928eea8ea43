"""The weighted mean of those who really contributed, through one plain sum."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.aggregation.mean import combine, contribute

values = st.floats(-1e3, 1e3)
peers = st.integers(1, 4).flatmap(
    lambda n: st.lists(
        st.tuples(
            st.lists(values, min_size=n, max_size=n), st.just(0.0) | st.floats(1e-3, 1e3), st.tuples(values, values)
        ),
        min_size=1,
        max_size=6,
    )
)


def test_a_weighted_mean_by_hand() -> None:
    one = contribute(torch.tensor([1.0, 2.0]), 1, [10.0])
    two = contribute(torch.tensor([5.0, 6.0]), 3, [20.0])
    assert one.tolist() == [1, 2, 10, 1]
    assert two.tolist() == [15, 18, 60, 3]
    mean = combine(one + two, signals=1)
    assert mean.vector.tolist() == [4, 5]
    assert mean.signals == (17.5,)
    assert mean.weight == 4


@settings(deadline=None)
@given(peers.filter(lambda drawn: any(weight for _, weight, _ in drawn)))
def test_the_sum_of_contributions_gives_the_weighted_mean(
    drawn: list[tuple[list[float], float, tuple[float, ...]]],
) -> None:
    sent = [contribute(torch.tensor(x, dtype=torch.float64), weight, signals) for x, weight, signals in drawn]
    mean = combine(torch.stack(sent).sum(0), signals=2)
    total = math.fsum(weight for _, weight, _ in drawn)
    rows = [[*x, *signals] for x, _, signals in drawn]
    expected = [
        math.fsum(row[i] * weight for row, (_, weight, _) in zip(rows, drawn, strict=True)) / total
        for i in range(len(rows[0]))
    ]
    assert [*mean.vector.tolist(), *mean.signals] == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert mean.weight == pytest.approx(total)


def test_one_peer_alone_gets_its_own_vector_back() -> None:
    vector = torch.tensor([0.1, -3.0, 7e20])
    assert torch.equal(combine(contribute(vector, 1)).vector, vector)


def test_weight_zero_contributes_zeros_even_out_of_nan() -> None:
    silent = contribute(torch.tensor([math.nan, math.inf]), 0, [math.nan])
    assert silent.tolist() == [0, 0, 0, 0]
    assert not silent.signbit().any()
    mean = combine(silent + contribute(torch.tensor([1.0, 2.0]), 2, [3.0]), signals=1)
    assert (mean.vector.tolist(), mean.signals, mean.weight) == ([1, 2], (3,), 2)


def test_a_contribution_is_new_and_the_vector_stays_as_it_was() -> None:
    vector = torch.ones(2, requires_grad=True)
    sent = contribute(vector, 2)
    sent.fill_(9)
    assert vector.tolist() == [1, 1]
    assert not sent.requires_grad


def test_the_mean_does_not_share_memory_with_the_sum() -> None:
    total = contribute(torch.ones(2), 1)
    mean = combine(total)
    total.fill_(9)
    assert mean.vector.tolist() == [1, 1]


@pytest.mark.parametrize("weight", [-1.0, -1e-30, math.nan, math.inf, -math.inf, 1e39, 1e-50])
def test_a_weight_that_is_no_weight_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match=r"^the weight of a contribution must be finite[^\n]*$"):
        contribute(torch.ones(2), weight)


@pytest.mark.parametrize("vector", [torch.ones(2, dtype=torch.int64), torch.tensor(1.0)])
def test_only_a_floating_vector_contributes(vector: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="only floating vectors"):
        contribute(vector, 1)


def test_nobody_contributed_is_an_error_not_a_nan() -> None:
    with pytest.raises(ValueError, match="nobody contributed"):
        combine(contribute(torch.ones(2), 0) + contribute(torch.ones(2), 0))


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf])
def test_a_total_weight_off_the_wire_is_checked(weight: float) -> None:
    with pytest.raises(ValueError, match="total weight"):
        combine(torch.tensor([1.0, weight]))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_diverged_peer_fails_the_round(bad: float) -> None:
    good = contribute(torch.ones(3), 1, [1.0])
    with pytest.raises(ValueError, match="1 elements that are not finite, the first is 1"):
        combine(good + contribute(torch.tensor([0.0, bad, 0.0]), 1, [1.0]), signals=1)
    with pytest.raises(ValueError, match="signals must be finite"):
        combine(good + contribute(torch.ones(3), 1, [bad]), signals=1)


def test_a_mean_that_leaves_the_range_of_floats_fails_the_round() -> None:
    with pytest.raises(ValueError, match="not finite"):
        combine(torch.tensor([1e38, 1e-5]))


@pytest.mark.parametrize(("total", "signals"), [(torch.ones(2), 2), (torch.ones(2, 2), 0), (torch.ones(3), -1)])
def test_a_sum_of_the_wrong_shape_is_refused(total: torch.Tensor, signals: int) -> None:
    with pytest.raises(ValueError, match="cannot carry"):
        combine(total, signals)
