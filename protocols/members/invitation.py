"""Invitations: an invite as all members agree on it. The view counts its uses, so that the changes of the view, not the
members that newcomers ask, decide how many keys it lets in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..transport import PeerId

KEYS_MAX = 1000
"""The most marks of keys in a view: they take a seventh of a header. Only the latest are kept."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """`guest`: the public half of the key that the invite holds. `keys_max`: how many keys it may let in, None: without
    a limit; `keys`: how many it has let in. `seconds`: how much longer it is valid, counted by each peer from when it
    hears of the view, None: without a limit."""

    guest: PeerId
    keys_max: int | None = None
    keys: int = 0
    seconds: float | None = None

    @property
    def used_up(self) -> bool:
        return self.keys_max is not None and self.keys >= self.keys_max


def mark(key: PeerId) -> int:
    """What a view keeps of a key that was let in: 63 bits of its hash. No other key with that hash can be found."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
