"""The server functions by name, and the syntax by which a user chooses one: ``add``, ``sgd:0.1``, ``momentum:0.1:0.9``.
Adding one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..options import made_of, number
from .adagrad import Adagrad
from .adam import Adam
from .add import Add
from .function import ServerFunction
from .momentum import Momentum
from .sgd import SGD

SERVER_FUNCTIONS: Mapping[str, tuple[Callable[..., ServerFunction], int]] = {
    "add": (Add, 0),
    "sgd": (lambda rate="0.1": SGD(number(rate)), 1),
    "momentum": (lambda rate="0.1", beta="0.9": Momentum(number(rate), number(beta)), 2),
    "adagrad": (lambda rate="0.01", first="0": Adagrad(number(rate), number(first)), 2),
    "adam": (lambda rate="0.001", b1="0.9", b2="0.999": Adam(number(rate), number(b1), number(b2)), 3),
}
"""Name -> a function that makes the server function from its options, which are texts, and the most options it
takes."""


def parse_server_function(text: str) -> ServerFunction:
    """The server function that a user asks for: a name of `SERVER_FUNCTIONS` with its options after colons. Raises
    ValueError, in one line, on anything else."""
    return made_of(text, SERVER_FUNCTIONS, "server function")
