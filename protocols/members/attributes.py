"""Attributes: properties of a member that the conversation uses.

The membership sends them with its views. It reads and assigns `data_shard` alone; all other attributes are for the
conversations, so a parameter server's roles or a federation's sites need no other membership.
"""

from __future__ import annotations

from dataclasses import dataclass

LETTERS_MAX = 64
SERVER = "server"
"""The role of a peer that holds the model for the others and does not train."""


@dataclass(frozen=True, slots=True)
class Attributes:
    """The attributes of one member. `role`: the peer's function in the conversation; "": the same as all others'.
    `site`: peers that are close to each other have the same value; "": this peer is close to none. `capacity`: how much
    the peer can take on, in the conversation's unit, as known when the view was decided; 0: unknown. Local SGD's unit
    is bytes a second, in both directions at the same time. `data_shard`: index of the data shard that the peer trains
    on; it also orders the ranks. Raises ValueError when the role or the site has more than 64 letters or one that is
    not printable, or a number is negative."""

    role: str = ""
    site: str = ""
    capacity: int = 0
    data_shard: int = 0

    def __post_init__(self) -> None:
        for name, text in (("role", self.role), ("site", self.site)):
            if len(text) > LETTERS_MAX or not text.isprintable():
                raise ValueError(f"the {name} of a peer has at most {LETTERS_MAX} printable letters, got {text:.80}")
        if min(self.capacity, self.data_shard) < 0:
            raise ValueError("a peer's capacity and the index of its data shard are 0 or more")

    @property
    def nbytes(self) -> int:
        """The bytes that the role and the site take in a message."""
        return len(self.role.encode()) + len(self.site.encode())
