"""Whether a run is over, from what its peers have counted alike."""

from __future__ import annotations

import math
import random

import pytest
import torch

from samovar.aggregation.goals import parse_goal
from samovar.aggregation.mean import combine, contribute
from samovar.aggregation.periods.fixed import Fixed
from samovar.protocols.local_sgd.checkpoint import position_of, state_of
from samovar.protocols.local_sgd.ends import NOT_COUNTED, Counts, Ends, counts_of
from samovar.protocols.local_sgd.state import State, from_snapshot, to_snapshot
from samovar.protocols.transfer.snapshot import Snapshot
from samovar.protocols.wire.frames import PeerMisbehaved
from samovar.protocols.work import Keep


def averaged(
    ends: Ends, peers: list[tuple[float, float, float, dict[str, float] | None]]
) -> tuple[tuple[float, ...], float]:
    """The mean signals and the total weight of peers with (samples, weight, epochs, metrics), as a round sums them."""
    messages = [
        contribute(torch.zeros(3), weight, ends.brought(samples=samples, weight=weight, epochs=epochs, metrics=metrics))
        for samples, weight, epochs, metrics in peers
    ]
    total = torch.stack(messages).sum(0)
    mean = combine(total, len(total) - 4)
    return mean.signals, mean.weight


def played(ends: Ends, samples: list[int], period: int, shard: int = 1000) -> tuple[int, Counts]:
    """Rounds of peers with so many samples in a local step, each of `shard` samples; the local steps of the run."""
    step, counts = 0, ends.begun(None, 0)
    for round_ in range(10_000):
        left = ends.left(step, counts)
        steps = period if left is None else min(period, left)
        if steps == 0:
            assert counts is not None
            return step, counts
        brought = [(float(steps * each), float(steps * each), steps * each / shard, None) for each in samples]
        signals, weight = averaged(ends, [*brought])
        counts, step = ends.counted(counts, signals, weight, steps=steps, round=round_), step + steps
    raise AssertionError("no end")


@pytest.mark.parametrize("period", [1, 7, 16, 100])
def test_a_run_overshoots_its_samples_by_less_than_a_local_step_of_each_peer(period: int) -> None:
    chance = random.Random(period)
    for _ in range(50):
        batches = [chance.randrange(1, 65) for _ in range(chance.randrange(1, 9))]
        most = chance.randrange(period * sum(batches), 50 * period * sum(batches))
        step, counts = played(Ends(samples=most), batches, period)
        assert counts.samples == step * sum(batches), "they are counted exactly"
        assert most <= counts.samples < most + sum(batches)


@pytest.mark.parametrize("epochs", [0.5, 1.0, 2.75, 40.0])
@pytest.mark.parametrize("batch", [1, 8, 30])
def test_a_number_of_epochs_is_as_many_local_steps_as_it_has(epochs: float, batch: int) -> None:
    shard = 40 * batch
    step, counts = played(Ends(epochs=epochs), [batch] * 3, 7, shard)
    assert step == epochs * 40
    assert counts.epochs == pytest.approx(epochs, rel=1e-5)


def test_the_first_end_that_is_reached_is_the_runs() -> None:
    assert played(Ends(samples=1000, steps=30), [4, 4], 8)[0] == 30
    assert played(Ends(samples=200, steps=30), [4, 4], 8)[0] == 25
    step, counts = played(Ends(samples=10**6, epochs=0.2), [4, 4], 8)
    end = Ends(samples=10**6, epochs=0.2).reason(step, counts)
    assert end is not None
    assert (step, end.by, end.why) == (
        50,
        "epochs",
        "the run has come to 0.2 epochs, on average over the peers of each round",
    )
    assert Ends(steps=50).reason(50, None) is not None
    assert Ends(steps=50).reason(49, None) is None
    assert Ends().left(10**9, None) is None


def test_an_end_by_epochs_tells_of_no_peer_what_only_others_have_done() -> None:
    """A peer that joins late, or is lost for a while, passes over its data fewer times."""
    ends = Ends(epochs=2.0)
    counts = ends.begun(None, 0)
    for round_, present in enumerate([(1.0,), (0.5, 0.5), (0.5, 0.5)]):
        brought = [(8.0, 8.0, passes, None) for passes in present]
        counts = ends.counted(counts, *averaged(ends, [*brought]), steps=8, round=round_)
    end = ends.reason(24, counts)
    assert end is not None
    assert (end.by, "each peer" in end.why, "come to 2 epochs, on average" in end.why) == ("epochs", False, True)


def test_without_an_end_that_needs_counts_nothing_is_counted_or_sent() -> None:
    assert Ends(steps=9).brought(samples=4, weight=4, epochs=0.1, metrics={"accuracy": 1.0}) == ()
    assert Ends(samples=9).brought(samples=4, weight=4, epochs=0.1, metrics={"accuracy": 1.0}) == ()
    assert Ends(steps=9).begun(None, 0) is None


def test_samples_are_counted_where_weights_are_other_numbers() -> None:
    ends = Ends(samples=100, own_pace=True)
    signals, weight = averaged(ends, [(40.0, 30.0, 0.0, None), (7.0, 30.0, 0.0, None), (0.0, 0.0, 0.0, None)])
    counts = ends.counted(ends.begun(None, 0), signals, weight, steps=5, round=0)
    assert counts is not None
    assert counts.samples == 47


def told(ends: Ends, metrics: list[dict[str, float] | None]) -> list[Counts]:
    """The counts after each of so many rounds, in which one of three peers brings these metrics."""
    counts, found = ends.begun(None, 0), []
    for round_, each in enumerate(metrics, 1):
        peers = [(48.0, 48.0, 0.0, None), (31.0, 31.0, 0.0, each), (48.0, 48.0, 0.0, None)]
        counts = ends.counted(counts, *averaged(ends, peers), steps=3, round=round_)
        assert counts is not None
        found.append(counts)
    return found


@pytest.mark.parametrize("value", [0.97, 1 / 3, 12345.6, -2.5, 0.0])
def test_a_metric_of_one_peer_is_known_to_all_after_its_next_round(value: float) -> None:
    (counts,) = told(Ends(goal=parse_goal("m > 1e9"), headline="m"), [{"m": value}])[:1]
    assert counts.goal == float(f"{value:.6g}")
    assert (counts.headline, counts.best) == (counts.goal, counts.goal)


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        ("accuracy >= 0.97", 0.97, True),
        ("accuracy >= 0.97", 0.9699, False),
        ("accuracy > 0.97", 0.97, False),
        ("accuracy >= 97 %", 0.97, True),
        ("accuracy >= 97%", 0.9699, False),
        ("perplexity<20", 19.9, True),
        ("perplexity <= 20", 20.0, True),
        ("perplexity < 20", 20.0, False),
        ("a loss  <  -1.5e-3", -0.002, True),
    ],
)
def test_a_goal_is_met_to_the_number(goal: str, value: float, met: bool) -> None:
    parsed = parse_goal(goal)
    ends = Ends(goal=parsed, headline="another")
    (counts,) = told(ends, [{parsed.metric: value, "another": 3.0}])
    assert (ends.left(3, counts) == 0) is met
    end = ends.reason(3, counts)
    assert (end is not None and end.by == "stop") is met


@pytest.mark.parametrize(
    "text", ["", "accuracy", "accuracy >=", "accuracy >= %", ">= 1", "accuracy = 1", "a > b", "a > nan", "a > 1 > 2"]
)
def test_text_that_is_no_goal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"goal|could not convert"):
        parse_goal(text)


def test_a_goal_may_be_written_with_the_mathematical_signs() -> None:
    assert parse_goal("AUC ≥ 0.99") == parse_goal("AUC >= 0.99")
    assert parse_goal("loss ≤ 1%") == parse_goal("loss <= 1%")


@pytest.mark.parametrize(("higher", "values"), [(True, [0.1, 0.5, 0.4, 0.5, 0.3]), (False, [9.0, 5.0, 6.0, 5.0, 7.0])])
def test_patience_counts_rounds_without_a_better_headline(higher: bool, values: list[float]) -> None:
    ends = Ends(patience=3, headline="m", higher=higher)
    found = told(ends, [None, *({"m": value} for value in values)])
    assert [ends.left(3, counts) for counts in found] == [None, None, None, None, None, 0]
    assert (found[-1].best, found[-1].best_round) == (values[1], 3)
    end = ends.reason(9, found[-1])
    assert end is not None
    assert (end.by, end.why) == ("stop_patience", f"no better m for 3 rounds than {values[1]:g} in round 3")


def test_the_end_tells_a_share_in_percent_as_it_is_shown_elsewhere() -> None:
    ends = Ends(goal=parse_goal("m >= 0.9"), headline="m", shares=frozenset({"m"}))
    end = ends.reason(3, told(ends, [{"m": 0.90625}])[0])
    assert end is not None
    assert end.why == "m 90.62% in round 1, and the goal is m >= 90%"


def test_a_metric_that_is_not_finite_or_missing_tells_nothing() -> None:
    ends = Ends(goal=parse_goal("m >= 0"), patience=1, headline="m")
    for metrics in ({"m": math.nan}, {"m": math.inf}, {"other": 1.0}, {}):
        assert told(ends, [metrics])[0].told == 0


def test_a_resumed_run_knows_why_it_was_over_and_goes_on_to_another_goal() -> None:
    ends = Ends(goal=parse_goal("m >= 2"), headline="m")
    (counts,) = told(ends, [{"m": 2.5}])
    assert ends.left(3, ends.begun(counts, 3)) == 0
    assert Ends(goal=parse_goal("m >= 3"), headline="m").left(3, counts) is None
    assert Ends(goal=parse_goal("other >= 2"), headline="m").left(3, counts) is None, "it was not told of that one"
    assert Ends(patience=1, headline="m").begun(None, 3) == Counts()
    for uncounted in (Ends(samples=100), Ends(epochs=1.0)):
        with pytest.raises(ValueError, match=r"this run has not counted its .* from the beginning: leave out --"):
            uncounted.begun(counts, 3)
    assert Ends(samples=100).begun(Counts(samples=40.0), 3) == Counts(samples=40.0)


def state(counts: Counts | None) -> State:
    return State(3, 24, torch.ones(4), (), Fixed(8).start(), counts=counts)


@pytest.mark.parametrize("counts", [None, Counts(), Counts(288.0, 0.5, 12.0, 0.02, 0.9, -0.9, 3, 0.95, 2, 2**32 - 1)])
def test_snapshots_and_checkpoints_hold_the_counts(counts: Counts | None) -> None:
    snapshot = to_snapshot(state(counts))
    assert from_snapshot(snapshot).counts == counts
    position = position_of(state(counts), None, Keep())
    assert state_of(position.tensors, position.numbers)[0].counts == counts
    if counts is None:
        assert len(snapshot.extra) == len(to_snapshot(state(Counts())).extra) - len(Counts._fields), "as before"
        before = {name: number for name, number in position.numbers["state"].items() if name != "counts"}
        assert state_of(position.tensors, {"state": before})[0].counts is None


@pytest.mark.parametrize("odd", [[1.0], [math.nan] * 10, ["a"] * 10, [True] * 10, [0.5] * 10, [0] * 11, [None] * 10])
def test_counts_of_a_stranger_that_make_no_sense_are_refused(odd: list[object]) -> None:
    good = to_snapshot(state(None))
    with pytest.raises(PeerMisbehaved, match="its counts make no sense"):
        from_snapshot(Snapshot(good.version, good.tensors, [*good.extra, *odd]))
    assert counts_of([]) is None
    assert Counts().samples == NOT_COUNTED
