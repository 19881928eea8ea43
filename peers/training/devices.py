"""The choice of a peer's device, and seat numbers that spread a user's peers over the devices of a machine."""

from __future__ import annotations

import os
import socket

import torch

from ..task.task import TaskError

_SEATS = 1024
_KEPT: list[socket.socket] = []
"""The sockets that hold this process's seats. The kernel frees a seat when the process ends, even by a kill."""


def pick_device(wish: str, index: int) -> torch.device:
    """The device of the peer with number `index`. `wish`: one or several choices, separated by commas, which the peers
    take in turn. A choice is a name that `torch.device` takes, such as ``cpu``, ``cuda`` or ``cuda:1``, or ``auto``, by
    which the peers take the machine's GPUs in turn, or the CPU if there is no GPU. Raises TaskError when the machine
    lacks the CUDA device; other devices are not checked."""
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
    """Raises TaskError when this machine lacks a CUDA device that `pick_device` would give by `wish` to a peer with a
    number from 0 to `peers` - 1."""
    for index in range(min(peers, len(wish.split(",")))):  # later indexes repeat these choices
        pick_device(wish, index)


def take_seat(index: int | None) -> int:
    """Take a seat for this process's peer: a number, by which the peers of one user on this machine choose different
    devices. It is held until the process ends. `index`: the number of a peer under a launcher, which is its seat, even
    if a peer of another launcher holds it. None: the peer was started alone; it gets the lowest number from 0 that no
    process of this user holds; 0 if none below 1024 is free, or the system cannot tell."""
    for seat in range(_SEATS) if index is None else [index]:
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0samovar-seat-{os.getuid()}-{seat}")
        except OSError:  # the seat is taken, or this system has no abstract socket names
            mark.close()
        else:
            _KEPT.append(mark)
            return seat
    return index or 0
