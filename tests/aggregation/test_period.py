"""The period follows the loss as AdaComm's paper says, alike on every peer, and stays within its limits."""

import math
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from samovar.aggregation.periods.adacomm import AdaComm, Block
from samovar.aggregation.periods.adaptive_periodic import Even
from samovar.aggregation.periods.auto import Auto
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.periods.policy import PERIOD_LIMIT, Motion, Numbers, PeriodState
from samovar.aggregation.periods.post_local import PostLocal
from samovar.aggregation.periods.qsr import Quadratic
from samovar.aggregation.periods.registry import PERIODS, parse_period

Round = tuple[float, float, float]  # loss, seconds since the round before, learning rate

EVERY_ROUND = AdaComm(initial=16, block_s=1.0, rounds_min=1)
"""Closes a block after each round that took a second."""


def run(policy: AdaComm | Fixed, rounds: list[Round]) -> list[PeriodState]:
    states, elapsed_s = [policy.start()], 0.0
    for loss, seconds, learning_rate in rounds:
        elapsed_s += seconds
        states.append(policy.update(states[-1], Numbers(loss, elapsed_s, learning_rate)))
    return states


def block(state: PeriodState) -> Block:
    return Block(*(state.memory or (0.0,) * 7))


def periods(policy: AdaComm | Fixed, rounds: list[Round]) -> list[int]:
    return [state.period for state in run(policy, rounds)]


rounds = st.lists(
    st.tuples(
        st.floats(0, allow_infinity=False),
        st.floats(0, 5),
        st.sampled_from([0.0, 5e-324, 0.01, 0.1, 1e300]) | st.floats(0, 1),
    ),
    max_size=30,
)
policies = st.builds(
    AdaComm,
    initial=st.integers(1, 64),
    block_s=st.floats(0.1, 5),
    decay=st.floats(0.01, 1),
    period_max=st.integers(64, 500),
    rounds_min=st.integers(1, 6),
)


def test_a_worked_example() -> None:
    """tau_0 = 16, F_0 = 4, gamma = 1/2, every round closes a block once the first has set F_0."""
    assert periods(
        EVERY_ROUND,
        [
            (4.0, 0.5, 0.1),  # F_0; the block is not a second old
            (2.25, 0.5, 0.1),  # sqrt(2.25/4) = 3/4, 12
            (2.25, 1.0, 0.1),  # again 12, not below 12: ceil(12/2) = 6
            (1.0, 1.0, 0.1),  # sqrt(1/4) 16 = 8, not below 6: 3
            (0.09, 1.0, 0.1),  # 0.15 * 16 = 2.4, 3 is not below 3: ceil(3/2) = 2
            (0.01, 1.0, 0.1),  # 0.05 * 16 = 0.8, 1
            (0.01, 1.0, 0.1),  # 1
            (0.25, 1.0, 0.025),  # eta_0/eta = 4: sqrt(4 * 0.25/4) 16 = 8, taken although it is above 1
            (0.25, 1.0, 0.025),  # the same candidate with the same learning rate: 4
        ],
    ) == [16, 16, 12, 6, 3, 2, 1, 1, 8, 4]


@settings(deadline=None)
@given(st.integers(1, 1000), st.floats(1e-3, 1e3), st.floats(1e-6, 0.999))
def test_a_falling_loss_lowers_the_period_as_the_formula_says(initial: int, first: float, fall: float) -> None:
    policy = AdaComm(initial=initial, block_s=1.0, period_max=1000, rounds_min=1)
    _, period = periods(policy, [(first, 0.0, 0.1), (first * fall, 1.0, 0.1)])[1:]
    candidate = math.ceil(math.sqrt(first * fall / first) * initial)
    assert period == (candidate if candidate < initial else math.ceil(initial / 2))


@pytest.mark.parametrize(("decay", "expected"), [(0.5, [16, 8, 4, 2, 1, 1, 1]), (0.25, [16, 4, 1, 1, 1, 1, 1])])
def test_a_plateau_lowers_the_period_down_to_one(decay: float, expected: list[int]) -> None:
    policy = AdaComm(initial=16, block_s=1.0, decay=decay, rounds_min=1)
    assert periods(policy, [(3.0, 1.0, 0.1)] * 6) == expected


def test_a_rising_loss_lowers_the_period_too() -> None:
    assert periods(EVERY_ROUND, [(3.0, 1.0, 0.1), (30.0, 1.0, 0.1), (300.0, 1.0, 0.1)]) == [16, 8, 4, 2]


def test_a_learning_rate_that_changes_skips_the_decay_once() -> None:
    changed = [(3.0, 1.0, 0.1)] * 2 + [(3.0, 1.0, 0.025)] * 2
    assert periods(EVERY_ROUND, changed) == [16, 8, 4, 32, 16]


def test_a_learning_rate_that_is_off_by_rounding_is_the_same() -> None:
    """A mean of equal learning rates in float32 differs in its last bits from round to round."""
    assert periods(EVERY_ROUND, [(3.0, 1.0, 0.1), (3.0, 1.0, 0.1000001), (3.0, 1.0, 0.0999999)]) == [16, 8, 4, 2]


def test_a_change_early_in_a_block_counts_when_the_block_closes() -> None:
    policy = AdaComm(initial=16, block_s=1.0, rounds_min=3)
    assert periods(policy, [(3.0, 1.0, 0.1)] * 3 + [(3.0, 1.0, 0.025)] * 3) == [16, 16, 16, 8, 8, 8, 32]


def test_a_learning_rate_that_rises_lowers_the_period() -> None:
    assert periods(EVERY_ROUND, [(3.0, 1.0, 0.1), (3.0, 1.0, 0.4)]) == [16, 8, 8]
    assert periods(EVERY_ROUND, [(3.0, 1.0, 0.1), (3.0, 1.0, 1.6)]) == [16, 8, 4]


def test_ten_times_less_learning_rate_raises_the_period_by_the_square_root_of_ten() -> None:
    assert periods(EVERY_ROUND, [(3.0, 1.0, 0.1), (3.0, 1.0, 0.01)])[-1] == math.ceil(math.sqrt(10) * 16) == 51


def test_the_period_never_exceeds_its_maximum() -> None:
    policy = AdaComm(initial=16, block_s=1.0, period_max=40, rounds_min=1)
    assert periods(policy, [(3.0, 1.0, 0.1), (3.0, 1.0, 1e-9)])[-1] == 40


def test_a_block_lasts_its_seconds() -> None:
    policy = AdaComm(initial=16, block_s=2.0, rounds_min=1)
    assert [block(state).block for state in run(policy, [(3.0, 0.75, 0.1)] * 7)] == [0, 0, 0, 1, 1, 1, 2, 2]


def test_on_a_slow_network_a_block_lasts_its_rounds() -> None:
    policy = AdaComm(initial=16, block_s=2.0)
    assert periods(policy, [(3.0, 60.0, 0.1)] * 10) == [16] * 5 + [8] * 5 + [4]


def test_only_the_round_that_closes_a_block_counts() -> None:
    policy = AdaComm(initial=16, block_s=1.0, rounds_min=3)
    assert periods(policy, [(4.0, 1.0, 0.1), (1e-9, 1.0, 0.1), (1.0, 1.0, 0.1)])[-1] == 8
    assert periods(policy, [(4.0, 1.0, 0.1), (1e9, 1.0, 0.1), (1.0, 1.0, 0.1)])[-1] == 8


def test_a_clock_that_starts_again_starts_the_block_s_time_again() -> None:
    state = PeriodState(8, Block(0, 9, 0, 4.0, 0.1, 0.1, 1000.0))
    state = EVERY_ROUND.update(state, Numbers(1.0, 0.25, 0.1))
    assert (block(state).block, block(state).block_started_s) == (0, 0.25)
    state = EVERY_ROUND.update(state, Numbers(0.25, 1.25, 0.1))
    assert (block(state).block, state.period) == (1, 4)


def test_a_loss_of_zero_and_a_learning_rate_of_zero_have_an_answer() -> None:
    assert periods(EVERY_ROUND, [(0.0, 1.0, 0.1), (5.0, 1.0, 0.1)]) == [16, 16, 16]
    assert periods(EVERY_ROUND, [(5.0, 0.0, 0.1), (0.0, 1.0, 0.1)]) == [16, 16, 1]
    assert periods(EVERY_ROUND, [(5.0, 0.0, 0.0), (5.0, 1.0, 0.1)]) == [16, 16, 16]
    assert periods(EVERY_ROUND, [(5.0, 0.0, 0.1), (1.25, 1.0, 0.0)]) == [16, 16, 8]


def test_ratios_beyond_the_range_of_floats_have_an_answer() -> None:
    assert periods(EVERY_ROUND, [(5e-324, 0.0, 0.1), (1e308, 1.0, 0.1)]) == [16, 16, 8]
    assert periods(EVERY_ROUND, [(5e-324, 0.0, 1e300), (1e308, 1.0, 5e-324)]) == [16, 16, 256]
    assert periods(EVERY_ROUND, [(5e-324, 0.0, 5e-324), (1e308, 1.0, 1e300)]) == [16, 16, 1]


@settings(deadline=None)
@given(policies, rounds)
def test_the_period_stays_within_its_limits_and_changes_between_blocks_only(
    policy: AdaComm, drawn: list[Round]
) -> None:
    states = run(policy, drawn)
    assert all(1 <= state.period <= policy.period_max for state in states)
    for before, after in pairwise(states):
        assert after.period == before.period or block(after).block == block(before).block + 1


@settings(deadline=None)
@given(policies, rounds)
def test_equal_numbers_give_equal_periods_even_across_a_snapshot(policy: AdaComm, drawn: list[Round]) -> None:
    expected = run(policy, drawn)
    state, elapsed_s = policy.start(), 0.0
    for (loss, seconds, learning_rate), after in zip(drawn, expected[1:], strict=True):
        elapsed_s += seconds
        plain = state.to_plain()
        assert all(type(value) is float for value in plain)
        state = policy.update(PeriodState.from_plain(plain), Numbers(loss, elapsed_s, learning_rate))
        assert state == after


def test_a_fixed_period_stays_and_looks_at_nothing() -> None:
    assert periods(Fixed(7), [(math.nan, 1.0, 0.1), (-1.0, 1.0, 0.1)]) == [7, 7, 7]
    assert Fixed(3).update(Fixed(7).start(), Numbers(1.0, 1.0, 0.1)).period == 3


def test_adaptive_after_fixed_takes_its_first_loss_from_its_own_first_round() -> None:
    state = run(Fixed(500), [(9.0, 1.0, 0.1)] * 3)[-1]
    state = EVERY_ROUND.update(state, Numbers(4.0, 0.5, 0.1))
    state = EVERY_ROUND.update(state, Numbers(1.0, 1.0, 0.1))
    assert (block(state).initial_loss, state.period) == (4.0, 8)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["loss", "elapsed_s", "learning_rate"])
def test_a_number_that_cannot_be_is_refused(name: str, bad: float) -> None:
    numbers = {"loss": 1.0, "elapsed_s": 1.0, "learning_rate": 0.1, name: bad}
    with pytest.raises(ValueError, match=r"^[^\n]*must be finite[^\n]*, got[^\n]*$"):
        AdaComm().update(AdaComm().start(), Numbers(**numbers))


def test_a_loss_below_zero_leaves_the_period_as_it_is() -> None:
    below = [(-1.0, 1.0, 0.1)] * 3
    assert periods(EVERY_ROUND, [*below, (4.0, 1.0, 0.1), (2.25, 1.0, 0.1)]) == [16, 16, 16, 16, 8, 4]
    assert periods(EVERY_ROUND, [(4.0, 0.5, 0.1), (2.25, 1.0, 0.1), *below]) == [16, 16, 12, 12, 12, 12]
    assert run(EVERY_ROUND, below)[-1] == EVERY_ROUND.start(), "it is not taken for the first loss either"


@pytest.mark.parametrize("name", PERIODS)
def test_no_policy_ends_a_run_whose_loss_or_learning_rate_is_below_zero(name: str) -> None:
    """As that of a density may be, or that of a linear schedule which is stepped beyond its end."""
    state = (policy := parse_period(name)).start()
    motion = Motion(step_s=1.0, averaging_s=2.0, apart=1.0)
    for loss, rate in [(2.0, 0.1), (-1.0, 0.1), (2.0, -0.1), (-1.0, -0.1), (0.5, 0.1)] * 10:
        state = policy.update(PeriodState.from_plain(state.to_plain()), Numbers(loss, 1.0, rate, motion))
    assert 1 <= state.period <= 512


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("initial", [0, -1, 10**9, 2.0, True, 257]),
        ("block_s", [0.0, -1.0, math.nan, math.inf]),
        ("decay", [0.0, -0.5, 1.01, math.nan]),
        ("period_max", [0, -1, 10**9, 64.0]),
        ("rounds_min", [0, -1, 10**9, 1.5]),
    ],
)
def test_impossible_settings_are_refused_by_name(name: str, values: list[float]) -> None:
    for value in values:
        with pytest.raises(ValueError, match=rf"^[^\n]*{name}[^\n]* got {value}$"):
            AdaComm(**{name: value})


@pytest.mark.parametrize("steps", [0, -5, 10**9, 1.0, math.nan])
def test_impossible_fixed_periods_are_refused(steps: int) -> None:
    with pytest.raises(ValueError, match="the period must be a whole number from 1 to 1000000, got"):
        Fixed(steps)


def test_a_period_is_read_from_text() -> None:
    assert parse_period("adaptive") == AdaComm()
    assert parse_period(" 8\n") == Fixed(8)
    assert parse_period(str(PERIOD_LIMIT)) == Fixed(PERIOD_LIMIT)
    assert parse_period("auto") == Auto()
    assert parse_period("post_local:16") == PostLocal(16)
    assert parse_period("post_local:16:500") == PostLocal(16, 500)
    assert parse_period("qsr:4:0.0175") == Quadratic(4, 0.0175)
    assert parse_period("even:8") == Even(8)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "0",
            "-1",
            "+1",
            "1.5",
            "1e3",
            "1_0",
            "nan",
            "Adaptive",
            "often",
            "٣",
            "²",
            "1000001",
            "9" * 5000,
            "8\n8",
        ),
        *("auto:3", "qsr:4:nan", "qsr:4:0", "qsr:0:1", "post_local:0", "post_local:4:x"),
        *("even:0", "4:5"),
    ],
)
def test_any_other_text_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,250}$"):
        parse_period(text)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        {},
        [],
        [1.0] * 18,
        [0.0, *[1.0] * 7],
        [1e9, *[1.0] * 7],
        [1.5, *[1.0] * 7],
        [*[1.0] * 7, math.nan],
        [*[1.0] * 7, math.inf],
        [*[1.0] * 7, 10**400],
        [*[1.0] * 7, "1"],
        [True, *[1.0] * 7],
    ],
)
def test_a_snapshot_that_is_no_state_is_refused(plain: object) -> None:
    with pytest.raises(ValueError, match=r"^[^\n]{1,300}$"):
        PeriodState.from_plain(plain)
