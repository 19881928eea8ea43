"""Writes to a model's parameters by code that is only to read them. A tensor's `_version` does not tell of them: it
stays when `parameter.data` is written, and in some operations on several tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_GIVEN_AWAY: Final = (Tensor.numpy, Tensor.__array__, Tensor.__dlpack__)


class Writes:
    """While in this context, operations of PyTorch, in this thread, that write to the memory of `parameters` are
    noticed, however they name it: by a parameter, a view of it or its `data`. Those that give this memory to NumPy or
    by DLPack count as writes, because PyTorch does not see what follows. `parameter.data = other` does not: it gives a
    parameter other memory, and writes to none."""

    def __init__(self, parameters: Iterable[Tensor], refusal: str | None = None) -> None:
        """`refusal`: each such operation raises ValueError with this text, and is not done; None: it is done."""
        storages = [one.untyped_storage() for one in parameters if one.layout is torch.strided and one.numel()]
        self._storages = {storage.data_ptr(): storage for storage in storages}  # held, so that no other is in its place
        self._refusal = refusal
        self.found = ""
        """The name of the first operation that wrote, or would have written; "": none."""
        self._modes = ExitStack()

    def __enter__(self) -> Self:
        self._modes.enter_context(_Operations(self.note))
        self._modes.enter_context(_Gifts(self.note))
        return self

    def __exit__(self, *error: object) -> None:
        self._modes.close()

    def note(self, operation: str, written: object) -> None:
        """Note that `operation` is about to write to `written`, a tensor, several, or anything else, which is ignored.
        Raises ValueError if it is refused."""
        for one in written if isinstance(written, Sequence) else (written,):
            if not isinstance(one, Tensor) or one.layout is not torch.strided:
                continue
            if one.untyped_storage().data_ptr() in self._storages:
                self.found = self.found or operation
                if self._refusal is not None:
                    raise ValueError(self._refusal)


Note = Callable[[str, object], None]


class _Operations(TorchDispatchMode):
    """Notes the arguments to which an operation writes, by its schema."""

    def __init__(self, note: Note) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._note = note

    def __torch_dispatch__(
        self, function: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = kwargs or {}
        for place, argument in enumerate(function._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._note(str(function), args[place] if place < len(args) else named.get(argument.name))
        return function(*args, **named)


class _Gifts(TorchFunctionMode):
    """Notes the tensors whose memory is given to another library."""

    def __init__(self, note: Note) -> None:
        super().__init__()
        self._note = note

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function in _GIVEN_AWAY:
            self._note(function.__name__, args[0])
        return function(*args, **(kwargs or {}))
