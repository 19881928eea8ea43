"""Founding a run: its peers' keys, names and parts of the data, and the invite for those who come later."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

from ...protocols.zeromq.transport import KeyPair
from ..records.records import peer_file
from ..settings.settings import Settings
from .control import Orders
from .keys import Invite, read_authorized, read_key


def checkpoint_path(folder: Path, name: str) -> Path:
    """Where the peer of this name keeps its checkpoint in a run folder."""
    return peer_file(folder / "checkpoint", name, ".safetensors")


def log_path(folder: Path, name: str) -> Path:
    """Where a spawned peer's output and tracebacks go."""
    return peer_file(folder, name, ".log")


def _checkpoint_of(folder: Path, name: str) -> str | None:
    """None for a peer that was lost before it wrote one: it begins anew, and takes over what the others have."""
    path = checkpoint_path(folder, name)
    return str(path) if path.exists() else None


def founding_orders(
    task: Path, settings: Settings, folder: Path, *, resume: bool = False
) -> tuple[list[Orders], Invite | None]:
    """What each founder of a new run is told, and the invite for others; None without encryption.

    Raises KeyFileError for unusable key files.
    """
    pairs: list[KeyPair | None] = [None] * settings.peers
    guest, admit, invite = None, [], None
    if not settings.insecure:
        first = read_key(Path(settings.key)) if settings.key else KeyPair.new()
        keys = [first, *(KeyPair.new() for _ in range(settings.peers - 1))]
        invite = Invite.to(first.public)
        guest = invite.guest.public
        admit = [pair.public for pair in keys]
        admit += sorted(read_authorized(Path(settings.authorized))) if settings.authorized else []
        pairs = list(keys)
    threads = settings.threads or max(1, (os.cpu_count() or 1) // settings.peers)
    run = f"{folder.name}-{secrets.token_hex(4)}"
    all_orders = []
    for index, pair in enumerate(pairs):
        # One port can be listened on once: the first peer takes the one that was asked for, the others any.
        listen = settings.listen if index == 0 else settings.listen.rpartition(":")[0] + ":0"
        orders = Orders(
            task=str(task),
            settings=replace(settings.of_peer(index), listen=listen).to_json(),
            run=run,
            folder=str(folder),
            name=str(index),
            part=index,
            secret=pair.secret if pair else None,
            admit=admit,
            guest=guest,
            founder=index == 0,
            resume=_checkpoint_of(folder, str(index)) if resume else None,
            threads=threads,
        )
        all_orders.append(orders)
    return all_orders, invite
