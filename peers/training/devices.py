"""Which device a peer computes on, and whose turn it is at a machine's devices."""

from __future__ import annotations

import os
import socket

import torch

from ..task.task import TaskError

_SEATS = 1024
_KEPT: list[socket.socket] = []
"""The process's seats: each is free again when it has ended, however that was."""


def pick_device(wish: str, index: int) -> torch.device:
    """The device of the peer with this index: ``auto``, ``cpu``, ``cuda:N``, or a comma list that peers cycle over."""
    choices = wish.split(",")
    choice = choices[index % len(choices)]
    if choice == "auto":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return torch.device(f"cuda:{index % count}" if count else "cpu")
    device = torch.device(choice)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise TaskError(f"--device {choice}: this machine has no such device; use auto or cpu")
    return device


def check_devices(wish: str, peers: int) -> None:
    """Raises TaskError when the device of one of these peers is not there."""
    for index in range(min(peers, len(wish.split(",")))):  # then they come again
        pick_device(wish, index)


def take_seat(index: int | None) -> int:
    """This peer's number among those of its user on this machine, kept until its process ends: `index` for one of a
    launcher's, which others may have too; None, for one that comes by itself: the first that nobody has."""
    for seat in range(_SEATS) if index is None else [index]:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0samovar-seat-{os.getuid()}-{seat}")
        except OSError:  # somebody has it, or this system has no names without files
            mark.close()
        else:
            _KEPT.append(mark)
            return seat
    return index or 0
