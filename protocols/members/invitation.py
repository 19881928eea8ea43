"""Invitations: an invite as all members agree on it. Its uses are counted by the view, so that the changes of the view,
and not the members that newcomers ask, say how many keys it lets in."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..transport import PeerId

KEYS_MAX = 1000
"""Marks of keys in a view: so many take a seventh of a header. Of an invitation without a limit the latest are kept."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """`guest`: the public half of the key that the invite holds. `keys_max`: how many keys it may let in, `keys`: how
    many it has. `seconds`: how much longer it holds, counted by each peer from when it hears of the view. None: without
    a limit."""

    guest: PeerId
    keys_max: int | None = None
    keys: int = 0
    seconds: float | None = None

    @property
    def used_up(self) -> bool:
        return self.keys_max is not None and self.keys >= self.keys_max


def mark(key: PeerId) -> int:
    """What a view remembers of a key that was let in: 63 bits of its hash, which nobody finds another key for."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
