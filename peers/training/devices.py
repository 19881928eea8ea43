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
    """The device of the peer with number `index`. `wish`: ``auto``, ``cpu``, ``cuda``, ``cuda:N``, or several with
    commas, which the peers take in turn. ``auto`` spreads the peers over the machine's GPUs, or is the CPU. Raises
    TaskError when the machine does not have the device."""
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
    """Raises TaskError when this machine lacks a device that one of so many `peers` would get by `wish`
    (`pick_device`)."""
    for index in range(min(peers, len(wish.split(",")))):  # later indexes repeat these choices
        pick_device(wish, index)


def take_seat(index: int | None) -> int:
    """The seat of this peer, a number that no other peer of its user on this machine has, held until its process ends.
    `index`: the number of a peer under a launcher, which is returned even if another launcher's peer has that seat.
    None: a peer that was started alone gets the first free seat; 0 if none is free, or the system cannot tell."""
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
