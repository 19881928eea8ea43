"""Wholes: the values of several ranges one behind the other in one tensor, of which the values of their copies are
parts. A server updates a whole, and sends it, by one operation each: with ranges of 64 KiB one for each costs more than
the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from ...aggregation.rows import Rows
from ...aggregation.server.function import ServerFunction, State


class Part(Protocol):
    """A copy of a range, whose values and state may be parts of a `whole`."""

    values: Tensor
    state: State
    lent: bool
    whole: Whole | None


@dataclass(frozen=True, slots=True, eq=False)
class Whole:
    """The `values` [n] of `ranges`, and the `state` of the server function, tensors [n] too."""

    ranges: tuple[int, ...]
    values: Tensor
    state: State

    def is_there(self, copies: Mapping[int, Part]) -> bool:
        """Whether this whole is in use for all its ranges: each range's copy in `copies` is a part of it."""
        parts = map(copies.get, self.ranges)
        return all(part is not None and part.whole is self for part in parts)


def step(function: ServerFunction, ranges: tuple[int, ...], copies: Mapping[int, Part], pushed: Tensor) -> None:
    """Update the copies of `ranges` by one step of `function` with `pushed`, which has the elements of all these ranges
    one behind the other. The copies get new tensors; the former ones are not written to."""
    parts = [copies[number] for number in ranges]
    _leave(ranges, copies, parts)
    if len(parts) == 1:
        (part,) = parts
        part.values, part.state = function.step(part.values, pushed, part.state)
        part.whole = None
        return
    sizes = [part.values.shape[0] for part in parts]
    if (before := _whole(ranges, copies, parts)) is not None:
        whole = Whole(ranges, *function.step(before.values, pushed, before.state))
        for part, values in zip(parts, torch.split(whole.values, sizes), strict=True):
            part.values, part.whole = values, whole
        states = {name: torch.split(tensor, sizes) for name, tensor in whole.state.items()}
        for at, part in enumerate(parts if states else ()):
            part.state = {name: tensors[at] for name, tensors in states.items()}
        return
    for part, own in zip(parts, torch.split(pushed, sizes), strict=True):
        part.values, part.state = function.step(part.values, own, part.state)
        part.whole = None


def step_rows(function: ServerFunction, parts: Sequence[Part], counts: list[int], pushed: Rows) -> None:
    """Update the rows of the blocks `parts` that are in `pushed`, and the rows of their states, by one step of
    `function`. `pushed.ids` [k] are numbers in the blocks, and `counts` how many are of each block, block after block.
    The tensors of the copies are written to, but for those that are lent: their copies get new ones."""
    split = zip(parts, torch.split(pushed.ids, counts), strict=True)
    touched, sizes = [(part, ids) for part, ids in split if ids.shape[0]], [count for count in counts if count]
    if not touched:
        return
    for part, _ in touched:
        if part.lent:
            part.values, part.lent = part.values.clone(), False
            part.state = {name: tensor.clone() for name, tensor in part.state.items()}
    before = torch.cat([part.values[ids] for part, ids in touched])
    state = {name: torch.cat([part.state[name][ids] for part, ids in touched]) for name in touched[0][0].state}
    values, after = function.step(before, pushed.values, state)
    for (part, ids), own in zip(touched, torch.split(values, sizes), strict=True):
        part.values[ids] = own
    for name, tensor in after.items():
        for (part, ids), own in zip(touched, torch.split(tensor, sizes), strict=True):
            part.state[name][ids] = own


def tensors_of(ranges: tuple[int, ...], copies: Mapping[int, Part]) -> list[Tensor]:
    """The values of these ranges, in their order; ranges that follow each other as in a whole are one tensor."""
    found, at = list[Tensor](), 0
    while at < len(ranges):
        part = copies[ranges[at]]
        whole = part.whole
        if whole is not None and whole.ranges == ranges[at : at + len(whole.ranges)] and whole.is_there(copies):
            found.append(whole.values)
            at += len(whole.ranges)
        else:
            found.append(part.values)
            at += 1
    return found


def joined_of(ranges: tuple[int, ...], copies: Mapping[int, Part], name: str) -> Tensor:
    """The tensors `name` of the states of these ranges, one behind the other, or the values, where states have none of
    that name. It is only for reading: if the ranges are a whole, it is the whole's."""
    parts = [copies[number] for number in ranges]
    whole = parts[0].whole
    if whole is not None and whole.ranges == ranges and whole.is_there(copies):
        return whole.state.get(name, whole.values)
    own = [part.state.get(name, part.values) for part in parts]
    return own[0] if len(own) == 1 else torch.cat(own)


def _whole(ranges: tuple[int, ...], copies: Mapping[int, Part], parts: Sequence[Part]) -> Whole | None:
    """The whole of these copies, made now if need be. None: they can be none, because the server function does not keep
    one number for each element."""
    first = parts[0]
    if first.whole is not None and first.whole.ranges == ranges and first.whole.is_there(copies):
        return first.whole
    if first.values.dim() != 1 or any(tensor.shape != first.values.shape for tensor in first.state.values()):
        return None
    state = {name: torch.cat([part.state[name] for part in parts]) for name in first.state}
    return Whole(ranges, torch.cat([part.values for part in parts]), state)


def _leave(ranges: tuple[int, ...], copies: Mapping[int, Part], parts: Sequence[Part]) -> None:
    """The `parts` of `ranges` get other values. Copies that are in a whole with one of these get values of their own,
    because any part of a whole keeps all its memory."""
    for whole in {id(part.whole): part.whole for part in parts}.values():
        if whole is None or whole.ranges == ranges:
            continue
        for number in whole.ranges:
            if (other := copies.get(number)) is not None and other.whole is whole and number not in ranges:
                other.values, other.whole = other.values.clone(), None
                other.state = {name: tensor.clone() for name, tensor in other.state.items()}
