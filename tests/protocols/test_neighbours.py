"""Neighbours that are away while too few are left to remove them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from samovar.protocols.members.neighbours import Neighbours
from samovar.protocols.members.view import Attributes, Member

MEMBER = Member("a", "a", "sim://a", Attributes(), 1, life=7)


@dataclass
class Watched:
    """The neighbour a, and what is told of it: its life where it is away, minus its life where it is back."""

    gone: dict[str, str] = field(default_factory=dict)
    told: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.neighbours = Neighbours(self.gone.get)
        self.neighbours.on_away.append(lambda member, why: self.told.append(member.life))
        self.neighbours.on_back.append(lambda member: self.told.append(-member.life))
        self.neighbours.become([MEMBER], lambda member: "")

    def look(self, *, away: bool, short: bool = False) -> None:
        self.gone.clear()
        self.gone.update({"a": "it went silent"} if away else {})
        self.neighbours.look(self.gone)
        if short:
            self.neighbours.stay_away()


def test_a_neighbour_is_told_to_be_away_once_and_again_after_it_was_back() -> None:
    watched = Watched()
    watched.look(away=True)
    assert watched.told == [], "it may still be removed"
    for _ in range(2):
        watched.look(away=True, short=True)
        assert watched.told == [7]
        assert watched.neighbours.was_told("a", 7)
    watched.look(away=False)
    assert not watched.neighbours.was_told("a", 7)
    watched.look(away=True, short=True)
    assert watched.told == [7, -7, 7]


def test_one_that_was_told_of_nobody_is_not_told_to_be_back_but_has_returned() -> None:
    watched = Watched()
    watched.look(away=True)
    watched.look(away=False)
    assert watched.told == []
    assert [watched.neighbours.have_returned() for _ in range(2)] == [True, False]


def test_a_neighbour_that_is_restarted_while_it_is_away_is_another_one_that_is_away() -> None:
    watched = Watched()
    watched.look(away=True, short=True)
    watched.neighbours.become([replace(MEMBER, life=8)], lambda member: "")
    watched.look(away=True, short=True)
    assert watched.told == [7, 8]
    watched.look(away=False)
    assert watched.told == [7, 8, -8]
