"""The error of a peer that cannot be reached any more."""

from __future__ import annotations

from ..transport import PeerId


class PeerLost(Exception):
    """Raised when a peer cannot be reached any more, or is given up. `peer`: its id; `why`: the reason, in words."""

    def __init__(self, peer: PeerId, why: str) -> None:
        super().__init__(f"peer {peer:.12} is lost: {why}")
        self.peer, self.why = peer, why

    def __reduce__(self) -> tuple[type[PeerLost], tuple[PeerId, str]]:
        """For pickle and copy, which would otherwise call the class with the text alone."""
        return type(self), (self.peer, self.why)
