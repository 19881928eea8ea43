"""The memory that all simulated peers of a world share, as if they ran on one machine."""

from __future__ import annotations

from torch import Tensor

from ...protocols.shared_memory.common_vector import CommonVector, Where


class CommonMemory:
    """The common vectors of one world, which its peers create and attach (the port `Memories`). `attach` raises OSError
    where there is no such vector."""

    def __init__(self) -> None:
        self._vectors: list[Tensor] = []

    def create(self, initial: Tensor) -> CommonVector:
        self._vectors.append(initial.clone())
        return _Place(self._vectors[-1], _where(len(self._vectors)))

    def attach(self, where: Where, like: Tensor) -> CommonVector:
        if not 0 < where.fd <= len(self._vectors) or where != _where(where.fd):
            raise OSError(f"there is no vector {where.fd}")
        return _Place(self._vectors[where.fd - 1], where)


def _where(number: int) -> Where:
    return Where(1, number, f"secret {number}".encode())


class _Place:
    """One peer's side of a vector. Its lock does nothing, because no two simulated steps overlap."""

    def __init__(self, vector: Tensor, where: Where) -> None:
        self.vector, self.where = vector, where

    def __enter__(self) -> None: ...

    def __exit__(self, *error: object) -> None: ...

    def close(self) -> None: ...
