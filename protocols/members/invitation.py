"""Invitations: an invite in the form in which it is part of the view. The view counts its uses, so the number of keys
that it lets in is limited for the whole run, whichever members the newcomers ask.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from ..transport import PeerId

KEYS_MAX = 1000
"""The most marks of keys in a view, which take a seventh of the message's header. Only the latest are kept."""


@dataclass(frozen=True, slots=True)
class Invitation:
    """An invite, by which newcomers may join. `guest`: the public key of the key pair that the invite holds.
    `keys_max`: how many newcomers' keys it may let in; None: no limit. `keys`: how many it has let in. `seconds`: how
    much longer it is valid, counted by each peer from when it hears of the view; None: no limit."""

    guest: PeerId
    keys_max: int | None = None
    keys: int = 0
    seconds: float | None = None

    @property
    def used_up(self) -> bool:
        """Whether the invite has let in as many keys as it may."""
        return self.keys_max is not None and self.keys >= self.keys_max


def mark(key: PeerId) -> int:
    """The form in which a view remembers a newcomer's key that was let in: 63 bits of the key's hash. In practice no
    other key with the same ones can be found."""
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big") >> 1
