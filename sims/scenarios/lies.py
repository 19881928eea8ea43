"""The lies that a hostile member of a simulation may tell again and again."""

from __future__ import annotations

from enum import StrEnum


class Lie(StrEnum):
    """The lies, by their names in a scenario file. What is said is in `sims.world.repeated_lies`."""

    REST_ANEW = "rest_anew"  # it tells each other member that all the rest join anew
    REST_VOTES = "rest_votes"  # the same, and that they vote for their former lives
    ONE_ANEW = "one_anew"  # it tells the others that one member joins anew
    FORMER_LIFE = "former_life"  # it says that it votes for a former life, and answers as before
    UNKNOWN_BASE = "unknown_base"  # it asks the others to adopt a view that goes on from a state that nobody holds
    PAST_BASE = "past_base"  # the same, from a state that is over
    NEXT_VIEW = "next_view"  # the same, from the state that all hold
    FALSE_VIEW = "false_view"  # it proposes a view that goes on from a state that nobody holds, and says that it holds
    TO_ONE = "to_one"  # it proposes to one other member, and says nothing more
    TO_OTHERS = "to_others"  # it proposes to all but the coordinator
    SWAPPED = "swapped"  # it has each half of the others adopt a view, and tells it that the other half's holds
    ACCUSATION = "accusation"  # it says that the coordinator is silent
    LEFT_OUT = "left_out"  # it tells each other member that the rest have a view without it
    FOREIGN = "foreign"  # it asks questions of a conversation that the others do not know
