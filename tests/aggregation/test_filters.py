"""Filters of pushes: what passes, what waits, and that nothing is lost of what is not forgotten."""

from __future__ import annotations

import pytest
import torch

from samovar.aggregation.filters.filter import Push
from samovar.aggregation.filters.registry import FILTERS, parse_filters
from samovar.aggregation.options import OptionError
from samovar.aggregation.vector import Part

N = 400


def push(weights: torch.Tensor, *, rate: float = 1.0, seed: int = 0) -> Push:
    return Push(weights, rate, seed)


def whole_numbers(seed: int) -> torch.Tensor:
    return torch.randint(-3, 4, (N,), generator=torch.Generator().manual_seed(seed)).float()


@pytest.mark.parametrize(
    "text",
    ["significant:0.5", "skip:0.7", "top_k:0.05", "top_k:0.05:fp16", "significant:0.3,skip:0.5", "skip:0.5,top_k:0.1"],
)
def test_what_was_sent_and_what_waits_are_all_changes_exactly(text: str) -> None:
    filters, weights = parse_filters(text), torch.linspace(-20, 20, N)
    residual, sent, total = None, torch.zeros(N), torch.zeros(N)
    for step in range(50):
        change = whole_numbers(step)
        found = filters.apply(change, residual, push(weights, seed=step))
        corrected = change if residual is None else change + residual
        assert found.held == int(((corrected != 0) & (found.sent == 0)).sum()) > 0
        residual, sent, total = found.residual, sent + found.sent, total + change
        assert torch.equal(sent + residual, total)
    assert sent.count_nonzero() > N / 2


def test_significant_sends_an_element_once_its_changes_add_up_to_the_share() -> None:
    filters, weights = parse_filters("significant:0.1"), torch.tensor([10.0, 0.0, -1.0])
    first = filters.apply(torch.tensor([0.6, 0.01, 0.05]), None, push(weights))
    assert first.sent.tolist() == pytest.approx([0, 0.01, 0])
    second = filters.apply(torch.tensor([0.6, 0.0, 0.04]), first.residual, push(weights))
    assert second.sent.tolist() == pytest.approx([1.2, 0, 0])
    assert second.residual.tolist() == pytest.approx([0, 0, 0.09])
    assert (first.held, second.held) == (2, 1)


def test_significant_looks_at_the_change_that_a_gradient_makes() -> None:
    filters, weights = parse_filters("significant:0.1"), torch.tensor([10.0, 10.0])
    found = filters.apply(torch.tensor([9.0, 11.0]), None, push(weights, rate=0.1))
    assert found.sent.tolist() == pytest.approx([0, 11])


@pytest.mark.parametrize("codec", ["int8", "fp16", "bf16", "sign", "qsgd:7"])
def test_a_codec_comes_last_and_what_it_leaves_is_sent_later(codec: str) -> None:
    filters, weights, parts = parse_filters(f"skip:0.3,{codec}"), torch.ones(N), (Part(0, 150), Part(150, N))
    assert filters.codec is not None
    residual, sent, total = None, torch.zeros(N), torch.zeros(N)
    for step in range(30):
        values = torch.randn(N, generator=torch.Generator().manual_seed(step))
        found = filters.apply(values, residual, Push(weights, 1.0, step, parts))
        for number, part in enumerate(parts):
            decoded = filters.codec.decode(found.coded[number], part.stop - part.start, torch.float32)
            assert torch.equal(decoded, found.sent[part.start : part.stop])
        residual, sent, total = found.residual, sent + found.sent, total + values
    assert torch.allclose(sent + residual, total, atol=1e-4)
    assert float(residual.norm()) < 0.7 * float(total.norm())


def test_skip_keeps_back_the_given_share_and_other_elements_in_each_push() -> None:
    filters, ones = parse_filters("skip:0.3"), torch.ones(20_000)
    first, again, second = (filters.apply(ones, None, push(ones, seed=seed)).sent for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert 0.68 < float(first.mean()) < 0.72
    assert 0.47 < float((first * second).mean()) < 0.51


def test_two_of_the_same_draw_differently() -> None:
    ones = torch.ones(20_000)
    assert 0.24 < float(parse_filters("skip:0.5,skip:0.5").apply(ones, None, push(ones)).sent.mean()) < 0.26


def test_a_row_passes_or_waits_whole() -> None:
    rows, weights = torch.tensor([[3.0, 4.0], [0.0, 0.1], [0.0, 0.0]]), torch.tensor([[60.0, 0.0], [0.1, 0], [1, 1]])

    def sent(text: str, rate: float = 1.0) -> list[bool]:
        passed, forgotten = parse_filters(text).passed(rows, Push(weights, rate, 3))
        assert bool(((passed == 0) | (passed == rows)).all())
        assert (forgotten is None) == ("kkt" not in text)
        assert forgotten is None or torch.equal(passed + forgotten, rows)
        return passed.any(dim=1).tolist()

    assert sent("significant:0.08") == [True, True, False]  # 5 of 60, by norm
    assert sent("significant:0.09") == [False, True, False]
    assert sent("significant:0.08", rate=0.5) == [False, True, False]
    assert sent("top_k:0.3") == [True, False, False]
    assert sent("kkt:0.2") == [True, True, False]  # a row with a weight that is not 0 passes


def test_skip_draws_once_for_each_row_and_top_k_rounds_rows_to_fp16() -> None:
    many = torch.rand(20_000, 3) + 1
    passed, _ = parse_filters("skip:0.3").passed(many, push(many))
    marks = passed != 0
    assert torch.equal(marks.any(dim=1), marks.all(dim=1))
    assert 0.68 < float(marks.float().mean()) < 0.72
    passed, _ = parse_filters("top_k:0.01:fp16").passed(many, push(many))
    largest = many.norm(dim=1).topk(200).indices.sort().values
    assert torch.equal(passed.any(dim=1).nonzero().flatten(), largest)
    assert torch.equal(passed[largest], many[largest].half().float())


def test_kkt_forgets_small_gradients_of_zeros_alone() -> None:
    weights = torch.tensor([0.0, 0.0, 0.5, -0.5])
    gradient = torch.tensor([-0.1, 0.4, 0.1, -0.4])
    found = parse_filters("kkt:0.2").apply(gradient, None, push(weights, rate=0.01))
    assert found.sent.tolist() == pytest.approx([0, 0.4, 0.1, -0.4])
    assert not found.residual.any()
    assert found.held == 1


def test_filters_act_in_the_order_in_which_they_are_named() -> None:
    weights, change = torch.zeros(4), torch.tensor([0.01, 0.02, 0.5, 0.4])
    kkt_first = parse_filters("kkt:0.1,top_k:0.25").apply(change, None, push(weights))
    assert kkt_first.sent.tolist() == pytest.approx([0, 0, 0.5, 0])
    assert kkt_first.residual.tolist() == pytest.approx([0, 0, 0, 0.4])  # the small ones are forgotten
    top_first = parse_filters("top_k:0.25,kkt:0.1").apply(change, None, push(weights))
    assert top_first.sent.tolist() == pytest.approx([0, 0, 0.5, 0])
    assert top_first.residual.tolist() == pytest.approx([0.01, 0.02, 0, 0.4])  # they never came to kkt


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("significance", "there is no filter 'significance'"),
        ("significant:0", "above 0"),
        ("skip:1", "below 1"),
        ("kkt:-1", "above 0"),
        ("top_k:2", "fraction"),
        ("skip:0.1:2", "takes 1 options"),
        ("", "there is no filter"),
        ("int8,skip", "the codec int8 comes last"),
        ("skip,power_sgd:2", "encodes no push"),
    ],
)
def test_other_names_and_options_are_refused_in_one_line(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why) as refused:
        parse_filters(text)
    assert "\n" not in str(refused.value)
    assert isinstance(refused.value, OptionError) or "there is no filter" in str(refused.value)


def test_each_filter_has_options_of_its_own_by_default() -> None:
    assert len(parse_filters(",".join(FILTERS)).chain) == len(FILTERS)


@pytest.mark.parametrize("text", ["top_k:0.1", "skip:0.5,top_k:0.1", "significant:0.5", "kkt:0.1"])
def test_a_model_whose_values_are_all_in_tables_has_an_empty_vector_to_filter(text: str) -> None:
    found = parse_filters(text).apply(torch.empty(0), None, push(torch.empty(0)))
    assert (len(found.sent), len(found.residual), found.held) == (0, 0, 0)
