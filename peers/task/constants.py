"""A model's constants: frozen parameters, and buffers with elements that are not finite, such as a mask of -inf.

They are equal on all peers and must stay so. Peers compare them once, by a hash that a newcomer's request carries with
its model's layout, and never send them: they cost no bytes and no rounding changes them. Where the conversation allows
it, a parameter may be unfrozen during the run, and is no constant from then on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...aggregation.vector import Layout
from ...protocols.members.terms import CONSTANTS
from .tensors import buffers_of

_LOOKED_AT = 16

_Look = tuple[torch.dtype, torch.Size, bytes]


@dataclass(frozen=True, slots=True)
class Agreement:
    """The properties in which all peers' models must be equal. `digest`: hash of the layout and the constants, and of
    tables and definitions where it was extended by these; `words`: the number of elements, tensors and constants, as
    text for error messages."""

    digest: str
    words: str

    @classmethod
    def on(cls, layout: Layout, constants: Mapping[str, Tensor] | None = None) -> Agreement:
        """The agreement on `layout` and `constants`, by name; None or empty: on the layout alone. The digest covers
        every byte of the constants, their names and their order."""
        words = f"{layout.size} elements in {len(layout.slots)} tensors"
        if not constants:
            return cls(layout.digest, words)
        whole = hashlib.blake2b(digest_size=16)
        for name, tensor in constants.items():
            whole.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            whole.update(_bytes_of(tensor).cpu().numpy().data)
        digest = hashlib.blake2b(f"{layout.digest} {whole.hexdigest()}".encode(), digest_size=16).hexdigest()
        return cls(digest, f"{words}, {len(constants)}{CONSTANTS}{whole.hexdigest()[:6]}")


class Constants:
    """The constants of one model: those that it had at construction, without the parameters that were unfrozen
    since."""

    def __init__(self, model: nn.Module) -> None:
        """Raises ValueError for a sparse or quantized constant, which cannot be hashed."""
        self._model = model
        self.names = frozenset(
            [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
            + [name for name, buffer in buffers_of(model).items() if not _finite(buffer)]
        )
        self._frozen = [(name, one) for name, one in model.named_parameters() if name in self.names]
        for name, tensor in self.tensors().items():
            if tensor.layout != torch.strided or tensor.is_quantized:
                raise ValueError(f"tensor {name!r} is {tensor.dtype} and {tensor.layout}; only dense ones are compared")
        self._looks: dict[str, _Look] = {}
        self.begin()

    def tensors(self) -> dict[str, Tensor]:
        """Name -> tensor of all constants, in the model's order."""
        now: dict[str, Tensor] = {**dict(self._model.named_parameters()), **buffers_of(self._model)}
        return {name: tensor for name, tensor in now.items() if name in self.names}

    def thawed(self) -> list[str]:
        """The names of the constants that the user's code has unfrozen. This is quick, because it is called at each
        step: it looks at the parameters of construction, and not at those of a layer that was replaced since."""
        return [name for name, parameter in self._frozen if parameter.requires_grad]

    def release(self, names: Collection[str]) -> dict[str, Tensor]:
        """Remove the parameters `names` from the constants, and return name -> parameter; their `requires_grad` is not
        changed. Raises ValueError for a parameter that the model lacks, or that was changed while it was frozen, as far
        as a sample of its elements shows."""
        now = dict(self._model.named_parameters())
        for name in names:
            if name not in now or _look(now[name]) != self._looks[name]:
                raise ValueError(
                    f"parameter {name!r} was changed before it was unfrozen, so peers may not have the same values of "
                    "it: unfreeze it first"
                )
        self.names -= frozenset(names)
        self._frozen = [(name, one) for name, one in self._frozen if name in self.names]
        self._looks = {name: look for name, look in self._looks.items() if name in self.names}
        return {name: now[name] for name in names}

    def begin(self) -> None:
        """Take the present values of the constants as the ones with which `check` compares."""
        self._looks = {name: _look(tensor) for name, tensor in self.tensors().items()}

    def check(self) -> None:
        """Raises ValueError when a constant is missing, requires a gradient, or was changed, as far as a sample of its
        elements shows. The reference is the values at construction, or at the last `begin`."""
        now = self.tensors()
        for name, look in self._looks.items():
            tensor = now.get(name)
            parameter = isinstance(tensor, nn.Parameter)
            if tensor is not None and tensor.requires_grad:
                raise ValueError(
                    f"parameter {name!r} was frozen when the run began, so peers do not average it, and is not frozen "
                    "now: to train it later, leave it unfrozen, and out of the optimizer until then, or use --protocol "
                    "allreduce with --average model, --inner kept or reset and --drift left, where it may be unfrozen"
                )
            if tensor is None or _look(tensor) != look:
                was = "frozen" if parameter else "not finite"
                mend = "make it a buffer, which is averaged" if parameter else "let it begin with finite numbers"
                raise ValueError(
                    f"{'parameter' if parameter else 'tensor'} {name!r} was {was} when the run began, so peers do not "
                    f"average it, but it has changed: {mend}"
                )


def _finite(buffer: Tensor) -> bool:
    dense = buffer.is_floating_point() and buffer.layout == torch.strided
    return not dense or bool(torch.isfinite(buffer).all())


def _bytes_of(tensor: Tensor) -> Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _look(tensor: Tensor) -> _Look:
    """A sample of evenly spaced elements, with dtype and shape. A write to the whole tensor changes at least one of
    them."""
    elements = _bytes_of(tensor).view(tensor.numel(), tensor.element_size())
    few = elements[:: max(1, len(elements) // _LOOKED_AT)]
    return tensor.dtype, tensor.shape, few.cpu().numpy().tobytes()
