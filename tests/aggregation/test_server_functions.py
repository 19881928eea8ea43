"""Server functions: each is the optimizer that it is named after, acts element by element, and writes into nothing."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from samovar.aggregation.options import OptionError
from samovar.aggregation.server.function import ServerFunction
from samovar.aggregation.server.lbfgs import KeepBasis
from samovar.aggregation.server.registry import SERVER_FUNCTIONS, parse_server_function

GRADIENTS = torch.randn(7, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def after(function: ServerFunction, pushes: Tensor) -> Tensor:
    values = torch.linspace(-1, 1, pushes.shape[-1], dtype=pushes.dtype)
    state = function.start(values)
    for pushed in pushes:
        values, state = function.step(values, pushed, state)
    return values


Made = Callable[[list[Tensor]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Made] = {
    "sgd:0.1": lambda own: torch.optim.SGD(own, lr=0.1),
    "momentum:0.1:0.9": lambda own: torch.optim.SGD(own, lr=0.1, momentum=0.9),
    "adagrad:0.05": lambda own: torch.optim.Adagrad(own, lr=0.05),
    "adam:0.05": lambda own: torch.optim.Adam(own, lr=0.05),
}


@pytest.mark.parametrize("text", OPTIMIZERS)
def test_a_server_function_is_the_optimizer_of_that_name(text: str) -> None:
    parameter = torch.linspace(-1, 1, 12, dtype=torch.float64).requires_grad_()
    optimizer = OPTIMIZERS[text]([parameter])
    for gradient in GRADIENTS:
        parameter.grad = gradient.clone()
        optimizer.step()
    assert torch.allclose(after(parse_server_function(text), GRADIENTS), parameter.detach(), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("function", [*map(parse_server_function, SERVER_FUNCTIONS), KeepBasis()], ids=repr)
def test_the_tensors_of_a_first_state_share_no_memory(function: ServerFunction) -> None:
    values = torch.ones(5)
    tensors = [values, *function.start(values).values()]
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def test_add_sums_whole_numbers_exactly() -> None:
    add, values = parse_server_function("add"), torch.zeros(4)
    for pushed in torch.arange(24, dtype=torch.float32).reshape(6, 4):
        values, _ = add.step(values, pushed, {})
    assert values.tolist() == [60, 66, 72, 78]


@pytest.mark.parametrize("name", SERVER_FUNCTIONS)
def test_a_range_has_the_bits_of_the_whole_and_nothing_is_written_into(name: str) -> None:
    function = parse_server_function(name)
    whole, part = torch.ones(10), torch.ones(10)[3:7].clone()
    state, own = function.start(whole), function.start(part)
    for row in torch.randn(5, 10, generator=torch.Generator().manual_seed(1)):
        kept = (whole.clone(), row.clone(), {key: tensor.clone() for key, tensor in state.items()})
        new, new_state = function.step(whole, row, state)
        assert torch.equal(kept[0], whole)
        assert torch.equal(kept[1], row)
        assert all(torch.equal(kept[2][key], state[key]) for key in state)
        part, own = function.step(part, row[3:7].clone(), own)
        whole, state = new, new_state
        assert torch.equal(whole[3:7], part)


@pytest.mark.parametrize("name", SERVER_FUNCTIONS)
def test_a_row_has_the_bits_of_the_row_alone_whichever_others_are_updated_with_it(name: str) -> None:
    """Copies of a block are updated together with other blocks at one server, and alone at the next."""
    function = parse_server_function(name)
    values = torch.randn(2000, 1, generator=torch.Generator().manual_seed(1))
    state = dict(function.start(values))
    if "pushes" in state:
        state["pushes"] = torch.arange(2000.0)
    together, _ = function.step(values, values, state)
    for row in range(2000):
        at = slice(row, row + 1)
        alone, _ = function.step(values[at], values[at], {key: tensor[at] for key, tensor in state.items()})
        assert torch.equal(alone, together[at]), row


@pytest.mark.parametrize("name", SERVER_FUNCTIONS)
def test_a_push_that_does_not_fit_is_refused(name: str) -> None:
    function, values = parse_server_function(name), torch.ones(4)
    for pushed in (torch.ones(3), torch.ones(4, dtype=torch.float64)):
        with pytest.raises(ValueError, match="pushed is"):
            function.step(values, pushed, function.start(values))
    with pytest.raises(ValueError, match="the state has"):
        function.step(values, torch.ones(4), {"another": torch.ones(4)})


@pytest.mark.parametrize("text", ["sgd:0", "sgd:-1", "momentum:0.1:1", "adam:0.1:1", "adagrad:x", "add:1"])
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(OptionError):
        parse_server_function(text)
