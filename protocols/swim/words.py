"""Words: statements of peers on other peers. A word on a peer counts only if it is newer than what is known of that
peer.

A word names a life of a peer and an incarnation of that life. A life is a random number that a process draws each time
it joins. An incarnation is a number that only the peer itself raises, so as to refute a word that it is suspected or
dead, and the member that lets it into the run anew. Of two words on a life, the one with the higher incarnation is
newer. With the same incarnation SUSPECT overrides ALIVE, and DEAD both.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from ..members.view import NAME_LETTERS_MAX, Member
from ..transport import PeerId
from ..wire.frames import PeerMisbehaved

INCARNATION_MAX = 1 << 48
AHEAD_MAX = 1024
"""How far the incarnation in a word may be above the one that is known. Long before a peer has been accused and has
refuted that so many times, its accusers are not believed any more (`false_suspicions`)."""
ID_LETTERS_MAX, ADDRESS_LETTERS_MAX, MACHINE_LETTERS_MAX = 64, 300, 128


class Kind:
    """The kinds of words. A word `DEAD` of a peer on itself says that it has left."""

    ALIVE: Final = 0
    SUSPECT: Final = 1
    DEAD: Final = 2


@dataclass(frozen=True, slots=True)
class Word:
    """A word of this `kind` on the life `life` of the peer `id`. `by`: the peer whose probes it did not answer, or
    itself if it has left; "" for ALIVE. `member`: its address and other data; None unless the word is ALIVE."""

    kind: int
    id: PeerId
    life: int
    incarnation: int
    by: PeerId = ""
    member: Member | None = None


def alive(member: Member, incarnation: int) -> Word:
    """The word that `member` is alive."""
    return Word(Kind.ALIVE, member.id, member.life, incarnation, "", member)


def check(word: Word) -> None:
    """Raises PeerMisbehaved for a word that is not well formed: of an unknown kind, without a life, on a peer with an
    empty or a guest's id, with an incarnation or a text beyond the limits; or ALIVE without a matching `member`, or
    with an accuser (`by`); or not ALIVE with a member, or without an accuser."""
    if word.kind > Kind.DEAD or word.incarnation > INCARNATION_MAX or word.life == 0:
        raise PeerMisbehaved(f"spoke of incarnation {word.incarnation} of a life in the state {word.kind}")
    if not 0 < len(word.id) <= ID_LETTERS_MAX or len(word.by) > ID_LETTERS_MAX or "/" in word.id:
        raise PeerMisbehaved(f"spoke of a peer {word.id!r:.80}")
    if (word.member is None) is (word.kind == Kind.ALIVE) or (word.by == "") is not (word.kind == Kind.ALIVE):
        raise PeerMisbehaved("told that a peer is alive, but not where, or that it is not, but not by whose probes")
    if word.member is not None:
        check_member(word.member)
        if (word.member.id, word.member.life) != (word.id, word.life):
            raise PeerMisbehaved("told where another peer is than the one that it spoke of")


def check_member(member: Member) -> None:
    """Raises PeerMisbehaved if the description of a peer has an empty or a guest's id, a text beyond the limits, or no
    life."""
    sound = (
        0 < len(member.id) <= ID_LETTERS_MAX
        and "/" not in member.id
        and len(member.name) <= NAME_LETTERS_MAX
        and len(member.address) <= ADDRESS_LETTERS_MAX
        and len(member.machine) <= MACHINE_LETTERS_MAX
        and member.life > 0
    )
    if not sound:
        raise PeerMisbehaved(f"spoke of a peer {member.name!r:.80} at {member.address!r:.80}")


def mark(peer: PeerId, life: int) -> int:
    """A hash, of 62 bits, of a life of a peer."""
    return int.from_bytes(hashlib.blake2b(f"{peer} {life}".encode(), digest_size=8).digest(), "big") >> 2
