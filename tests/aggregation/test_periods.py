"""What the other periods decide from what a round has averaged, and what a peer sees of the peers' motion."""

import pytest
import torch

from samovar.aggregation.periods.adaptive_periodic import Even
from samovar.aggregation.periods.auto import Auto
from samovar.aggregation.periods.displacement import MotionSampler
from samovar.aggregation.periods.policy import STILL, Motion, Numbers, PeriodPolicy, PeriodState
from samovar.aggregation.periods.post_local import PostLocal
from samovar.aggregation.periods.qsr import Quadratic
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

COSTS = Motion(step_s=1.0, averaging_s=4.0)
NOISE = COSTS._replace(apart=1.0, together=1.0)
DRIFT = COSTS._replace(apart=1.0, drift=0.9, together=1.0, early=0.3, late=0.2)


def after(policy: PeriodPolicy, rounds: list[tuple[Motion, float]]) -> list[PeriodState]:
    """Its states, each after a snapshot; a round has a motion and a learning rate."""
    states = [policy.start()]
    for motion, rate in rounds:
        before = PeriodState.from_plain(states[-1].to_plain())
        states.append(policy.update(before, Numbers(1.0, 1.0, rate, motion)))
    return states


def periods(policy: PeriodPolicy, rounds: list[tuple[Motion, float]]) -> list[int]:
    return [state.period for state in after(policy, rounds)]


def test_auto_begins_with_a_period_from_the_cost_of_averaging() -> None:
    """8 times alpha: from there on at most an eighth is left to gain."""
    assert periods(Auto(), [(STILL, 0.1), *[(COSTS, 0.1)] * 3]) == [4, 4, 16, 32, 32]
    assert periods(Auto(), [(COSTS._replace(averaging_s=0.01), 0.1)] * 3) == [4, 1, 1, 1]
    assert periods(Auto(), [(COSTS._replace(averaging_s=1e9), 0.1)] * 6)[-1] == Auto().period_max


def test_auto_recovers_from_a_slow_first_averaging() -> None:
    slow = [(COSTS._replace(averaging_s=40.0), 0.1)] * 4
    assert periods(Auto(), [*slow, (COSTS, 0.1), (COSTS, 0.1)]) == [4, 16, 64, 256, 256, 32, 32]


@pytest.mark.parametrize(("fast", "slow"), [(2, 6), (7, 1), (63, 1), (4, 4)])
def test_where_the_fast_wait_for_the_slow_auto_goes_by_the_slow(fast: int, slow: int) -> None:
    """Steps of 1 and of 4 s, an averaging of 40 s, which the fast begin to wait for sooner: the longer the period, the
    longer they wait, and yet nothing would be gained by a longer one. With slow peers alone it is 80."""
    state, last = Auto().start(), 0
    for _ in range(60):
        mean_s, waits_s = (fast + 4 * slow) / (fast + slow), 3 * fast / (fast + slow)
        motion = Motion(step_s=mean_s, averaging_s=40 + waits_s * last) if last else STILL
        last, state = state.period, Auto().update(state, Numbers(1.0, 1.0, 0.1, motion))
    assert 80 / 1.5 <= state.period <= 80 * 1.5


def test_noise_alone_never_shortens_auto() -> None:
    assert set(periods(Auto(), [(NOISE._replace(together=-1.0), 0.1)] * 50)[3:]) == {32}


def test_drift_shortens_auto_once_the_mean_gets_nowhere() -> None:
    assert set(periods(Auto(), [(DRIFT, 0.1)] * 50)[3:]) == {32}
    assert sorted(set(periods(Auto(), [(DRIFT._replace(together=-0.1), 0.1)] * 90))) == [1, 2, 4, 8, 16, 32]


def test_peers_at_their_own_ends_shorten_auto_early() -> None:
    ended = periods(Auto(), [(DRIFT._replace(late=0.01), 0.1)] * 8)
    assert ended == [4, 16, *[32] * 6, 16], "two rounds after a change tell of the period before"


def test_half_the_learning_rate_lengthens_auto_again() -> None:
    down = [(DRIFT._replace(together=-0.1), 0.1)] * 27
    assert periods(Auto(), down)[-1] == 8
    assert periods(Auto(), [*down, (DRIFT, 0.05)])[-1] == 16


def test_another_policy_s_memory_is_not_taken_for_its_own() -> None:
    state = PeriodState(7, (1.0, 2.0))
    assert (
        Auto().update(state, Numbers(1.0, 1.0, 0.1)).period == Auto().update(PeriodState(7), Numbers(1, 1, 0.1)).period
    )


def test_post_local_waits_for_the_learning_rate_to_fall() -> None:
    rates = [0.05, 0.1, 0.1, 0.01, 0.01, 0.1]
    assert periods(PostLocal(16), [(STILL, rate) for rate in rates]) == [1, 1, 1, 1, 16, 16, 16]
    assert periods(PostLocal(16, 3), [(STILL, 0.1)] * 4) == [1, 1, 1, 16, 16]


def test_the_quadratic_rule_is_its_formula() -> None:
    """Gu et al.: H_base 4, alpha 0.0175; at a learning rate of 0.002 (0.0175/0.002)^2 = 76.6."""
    rates = [(STILL, rate) for rate in (0.008, 0.008, 0.002, 0.002 + 1e-12, 1e-9)]
    assert periods(Quadratic(4, 0.0175), rates) == [4, 4, 4, 76, 76, 1_000_000]


def test_the_quadratic_rule_waits_for_the_end_of_a_warm_up() -> None:
    """By the formula the first rates would give periods of a million and of 30,625 steps."""
    rates = [(STILL, rate) for rate in (0.0, 1e-4, 0.001, 0.002, 0.002, 0.001, 0.0)]
    assert periods(Quadratic(4, 0.0175), rates) == [4, 4, 4, 4, 4, 76, 306, 306]


def test_even_keeps_the_peers_as_far_apart_as_they_were() -> None:
    learned = [(COSTS._replace(apart=1.0), 0.1)] * 20
    assert periods(Even(4), learned)[-1] == 4
    assert periods(Even(4), [*learned, (COSTS._replace(apart=0.5), 0.1)])[-1] == 5
    assert periods(Even(4), [*learned, (COSTS._replace(apart=2.0), 0.1)])[-1] == 3
    assert periods(Even(4), [*learned, (COSTS._replace(apart=0.5), 0.05)])[-1] == 4, "over the learning rate"


def test_a_motion_sampler_tells_drift_from_progress() -> None:
    """The mean goes 3 along the first axis a round; this peer goes 2 along the second besides, in its first half."""
    sampler, mean = MotionSampler(), torch.zeros(4)
    for _ in range(3):
        sampler.begin(mean)
        sampler.amid(mean + torch.tensor([1.0, 2.0, 0.0, 0.0]))
        sampler.end(mean + torch.tensor([3.0, 2.0, 0.0, 0.0]))
        mean = mean + torch.tensor([3.0, 0.0, 0.0, 0.0])
    assert sampler.motion == Motion(apart=4.0, drift=4.0, together=9.0, early=5.0, late=4.0)


def test_a_motion_sampler_does_not_guess() -> None:
    """A peer that came late has seen no round from its start, and one round alone has nothing to be compared with."""
    sampler = MotionSampler()
    sampler.end(torch.ones(4))
    sampler.begin(torch.ones(4))
    assert sampler.motion == STILL
    sampler.end(torch.ones(4))
    sampler.begin(torch.ones(4))
    assert sampler.motion == STILL


def test_a_motion_sampler_looks_at_a_part_of_a_large_model() -> None:
    sampler, large = MotionSampler(), torch.ones(1_000_000)
    for _ in range(3):
        sampler.begin(torch.zeros(1_000_000))
        sampler.end(large)
    assert 30_000 < sampler.motion.apart <= 65_536


def auto_run(**settings: object) -> World:
    """Three peers that are pulled elsewhere, each by its own data."""
    wished = {"peers": 3, "period": "auto", "steps": 700, "step_time": "10ms", "link": "1gbit,20ms", **settings}
    world = World(toy_task(), Scenario.plain(Settings(**wished)), lambda record: None)  # type: ignore[arg-type]
    run_virtual(world.run(), seed=1)
    return world


def test_all_peers_agree_on_auto_and_it_falls_where_their_data_differ() -> None:
    world = auto_run()
    states = {tuple(life.peer.conversation.state.period.to_plain()) for life in world.lives}
    assert len(states) == 1
    (state,) = states
    assert state[0] < 40 <= 8 * 5, "20 ms a message, several messages, 10 ms a step: it began with 40 and more"


@pytest.mark.parametrize("other", [{"outer": "nesterov:0.7:0.9"}, {"fragments": 2}])
@pytest.mark.parametrize("period", ["auto", "even:4"])
def test_a_period_that_watches_the_mean_needs_the_mean(period: str, other: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=r"looks at means of whole models: leave out --outer, --fragments"):
        Settings(period=period, **other)  # type: ignore[arg-type]


def test_an_unread_motion_sampler_costs_nothing() -> None:
    plain, watched = (auto_run(period=period, steps=64).lives[0].peer.conversation for period in ("16", "auto"))
    assert (plain.averaging.watches, watched.averaging.watches) == (False, True)
