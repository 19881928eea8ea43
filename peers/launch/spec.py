"""The plan of a new run: the keys, names and data shards of its founding peers, and the invite for later ones; and
where a peer's checkpoint and its log are."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from ...protocols.zeromq.transport import KeyPair
from ..records.run import peer_file
from ..run_settings.roles import role_of
from ..run_settings.settings import Settings
from .control import Orders
from .keys import Invite, read_authorized, read_key


def checkpoint_path(folder: Path, name: str) -> Path:
    """The path of the checkpoint of the peer with this name, in a run folder, whether or not there is one."""
    return peer_file(folder / "checkpoint", name, ".safetensors")


def log_path(folder: Path, name: str) -> Path:
    """The path of the log file of a spawned peer, which holds its output and tracebacks."""
    return peer_file(folder, name, ".log")


def _checkpoint_of(folder: Path, name: str) -> str | None:
    """The path of a peer's checkpoint. None if there is none, because the peer was lost before it wrote one: it then
    fetches the run's state from the other peers."""
    path = checkpoint_path(folder, name)
    return str(path) if path.exists() else None


def founding_orders(
    task: Path, settings: Settings, folder: Path, *, resumed_s: float | None = None, role: str | None = None
) -> tuple[list[Orders], Invite | None]:
    """The orders, with new keys, for the founding peers of the run that begin on this machine, and the invite for all
    other peers; None for an insecure run. `role`: only founding peers with this role begin here; None: all do. The
    first of them has the port of `listen`, and the key of the setting `key`, if that is given. `resumed_s`: the time of
    the run's last record, if the peers resume from the checkpoints in `folder`; a peer without a checkpoint there
    fetches the run's state from the others. None: the run is new. Raises KeyFileError for unusable key files."""
    places = [one for one in range(settings.founders) if role is None or role_of(settings, one) == role]
    pairs: list[KeyPair | None] = [None] * len(places)
    guest, admit, invite = None, [], None
    if not settings.insecure:
        first = read_key(Path(settings.key)) if settings.key else KeyPair.new()
        keys = [first, *(KeyPair.new() for _ in places[1:])]
        invite = Invite.to(first.public)
        guest = invite.guest.public
        admit = [pair.public for pair in keys]
        admit += sorted(read_authorized(Path(settings.authorized))) if settings.authorized else []
        pairs = list(keys)
    threads = settings.threads or max(1, (os.cpu_count() or 1) // len(places))
    run = f"{folder.name}-{secrets.token_hex(4)}"
    all_orders = []
    for index, pair in zip(places, pairs, strict=True):
        # A port has one listener: the first peer takes the port that was asked for, the others any free one.
        listen = settings.listens_at if index == places[0] else settings.listens_at.rpartition(":")[0] + ":0"
        orders = Orders(
            task=str(task),
            settings=settings.of_peer(index).changed(listen=listen).to_json(),
            run=run,
            folder=str(folder),
            name=str(index),
            data_shard=index,
            secret=pair.secret if pair else None,
            admit=admit,
            guest=guest,
            founder=index == places[0],
            resume=None if resumed_s is None else _checkpoint_of(folder, str(index)),
            resumed_s=resumed_s or 0.0,
            threads=threads,
            role=role_of(settings, index),
        )
        all_orders.append(orders)
    return all_orders, invite
