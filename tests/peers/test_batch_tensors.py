"""The tensors of a batch: how many samples they are, and that all of them reach the device."""

from __future__ import annotations

from collections import UserDict, deque
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from samovar.peers.task.tensors import cloned, moved, samples_in

CPU, META = torch.device("cpu"), torch.device("meta")


@dataclass(frozen=True, slots=True)
class Labelled:
    text: str
    parts: tuple[Any, ...]


class Named(NamedTuple):
    text: str
    x: torch.Tensor


class Own:
    """A batch that moves itself, as those of several libraries do."""

    def __init__(self, x: torch.Tensor) -> None:
        self.x = x

    def to(self, device: torch.device) -> Own:
        return Own(self.x.to(device))


@pytest.mark.parametrize(
    ("batch", "samples"),
    [
        (torch.zeros(7, 2), 7),
        ((torch.zeros(5), torch.zeros(9)), 5),
        ({"x": torch.zeros(3, 1)}, 3),
        ([[torch.zeros(2)]], 2),
        (("text", torch.zeros(6)), 6),
        ({"name": "text", "more": {"size": torch.tensor(3), "x": torch.zeros(4)}}, 4),
        (Labelled("text", (torch.zeros(8, 2),)), 8),
        (Named("text", torch.zeros(5)), 5),
        (deque([torch.zeros(3)]), 3),
        (UserDict(x=torch.zeros(2)), 2),
        (pack_sequence([torch.zeros(3), torch.zeros(1)]), 4),
        ("text", 1),
        (torch.zeros(()), 1),
        ([], 1),
    ],
)
def test_a_batch_counts_as_many_samples_as_its_first_tensor_is_long(batch: object, samples: int) -> None:
    assert samples_in(batch) == samples
    assert type(moved(batch, CPU)) is type(batch)


def test_tensors_are_moved_wherever_a_batch_holds_them() -> None:
    """The device `meta` stands for an accelerator."""
    x = torch.zeros(2)
    ours = Labelled("text", (x, {"x": [x]}))
    batch = (ours, Named("text", x), deque([x], maxlen=1), {"deep": {"x": UserDict(x=x)}}, Own(x))
    labelled, named, queue, mapping, own = cast("Any", moved(batch, META))
    found = [labelled.parts[0], labelled.parts[1]["x"][0], named.x, queue[0], mapping["deep"]["x"]["x"], own.x]
    assert [tensor.device.type for tensor in found] == ["meta"] * 6
    assert (labelled.text, named.text, queue.maxlen, labelled.parts[0].shape) == ("text", "text", 1, (2,))
    assert ours.parts[0] is x, "the task's own batch is as it was"


def test_a_packed_sequence_goes_to_the_device_and_its_lengths_stay() -> None:
    there = cast("Any", moved((pack_sequence([torch.zeros(3), torch.zeros(1)]), "text"), META))
    assert (there[0].data.device.type, there[0].batch_sizes.device.type) == ("meta", "cpu")


def test_a_copy_of_a_batch_shares_no_memory_with_it() -> None:
    batch = Labelled("text", (torch.zeros(2),))
    cast("Any", cloned(batch)).parts[0].add_(1)
    assert batch.parts[0].tolist() == [0, 0]
