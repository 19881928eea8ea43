"""Filters of pulls: which values readers are shown, and which filters a user may ask for."""

from __future__ import annotations

import pytest
import torch

from samovar.aggregation.codecs.cast import FP16
from samovar.aggregation.filters.pulls import PullFilters, parse_pull_filters
from samovar.aggregation.server.adam import Adam
from samovar.aggregation.server.add import Add
from samovar.aggregation.server.showing import SHOWN, showing


def test_a_value_is_shown_once_it_is_off_by_more_than_the_share() -> None:
    function = showing(Add(), PullFilters(0.1))
    values = torch.tensor([10.0, -10.0, 0.0])
    state = function.start(values)
    values, state = function.step(values, torch.tensor([0.75, -0.5, 0.01]), state)
    assert values.tolist() == pytest.approx([10.75, -10.5, 0.01])
    assert state[SHOWN].tolist() == pytest.approx([10, -10, 0.01])
    values, state = function.step(values, torch.tensor([0.5, 0.25, 0.0]), state)
    assert values.tolist() == pytest.approx([11.25, -10.25, 0.01])
    assert state[SHOWN].tolist() == pytest.approx([11.25, -10, 0.01])


def test_the_exact_values_and_states_are_as_without_filters() -> None:
    plain, filtered = Adam(0.01), showing(Adam(0.01), PullFilters(0.05))
    values = other = torch.randn(50, generator=torch.Generator().manual_seed(0))
    state, shown = plain.start(values), filtered.start(other)
    for step in range(20):
        pushed = torch.randn(50, generator=torch.Generator().manual_seed(step))
        values, state = plain.step(values, pushed, state)
        other, shown = filtered.step(other, pushed, shown)
        assert torch.equal(values, other)
        assert all(torch.equal(tensor, shown[name]) for name, tensor in state.items())
        assert bool(((values - shown[SHOWN]).abs() <= 0.0501 * shown[SHOWN].abs()).all())
    assert not torch.equal(shown[SHOWN], values)


def test_without_a_threshold_no_values_are_kept_for_readers() -> None:
    assert showing(Add(), PullFilters()).start(torch.ones(3)) == {}
    assert showing(Add(), None).start(torch.ones(3)) == {}


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("changed", PullFilters()),
        ("significant", PullFilters(0.01)),
        ("significant:0.2,fp16", PullFilters(0.2, FP16)),
        ("fp16", PullFilters(0.0, FP16)),
        (" changed , fp16", PullFilters(0.0, FP16)),
    ],
)
def test_a_user_names_a_filter_and_a_codec(text: str, due: PullFilters) -> None:
    assert parse_pull_filters(text) == due


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("skip:0.5", "skip is a filter of pushes: pulls have changed, significant"),
        ("kkt", "kkt is a filter of pushes"),
        ("top_k:0.1", "one of fp16, bf16, int8 does"),
        ("significant,sign", "the codec sign encodes no pulls"),
        ("power_sgd", "the codec power_sgd encodes no pulls"),
        ("int8,changed", "the codec int8 comes last"),
        ("changed,significant", "one of changed, significant is enough"),
        ("significant:0", "above 0"),
        ("changed:1", "takes no options|takes 0 options"),
        ("unchanged", "there is no filter of pulls 'unchanged'"),
        ("", "there is no filter of pulls"),
    ],
)
def test_other_filters_of_pulls_are_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_pull_filters(text)
    assert "\n" not in str(refused.value)
