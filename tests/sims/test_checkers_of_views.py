"""The promises of a sweep on views and on fetched states, in made-up logs."""

from collections.abc import Sequence
from hashlib import blake2b

import torch

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.local_sgd.rounds import Committed, Fetches, FetchFailed, Installed
from samovar.protocols.members.admission import Asks, Overruled
from samovar.protocols.members.edges import LostCoordinator, Reaches, VouchedFor
from samovar.protocols.members.messages import Behind, Install, Promise, Suspicion
from samovar.protocols.members.occasion import Counted
from samovar.protocols.members.states import Moved, State
from samovar.protocols.members.view import NOBODY, Answered, Bound, Decided, Decree, Followed, HeardOf, Version
from samovar.protocols.transfer.snapshot_transfer import Fetched, Served
from samovar.sims.checkers.common import Check
from samovar.sims.checkers.local_sgd_fetches import (
    a_donor_gives_the_parts_that_it_has_announced,
    a_given_up_peer_fetches_nothing,
    a_new_view_ends_no_fetch_of_the_same_state,
    a_part_that_is_kept_is_the_one_that_was_announced,
    a_view_goes_on_from_what_one_of_its_members_holds,
    no_earlier_state_is_taken_than_is_wanted,
)
from samovar.sims.checkers.local_sgd_liars import a_liar_moves_no_honest_member_apart
from samovar.sims.checkers.membership import (
    a_contact_hears_by_which_view_a_newcomer_was_removed,
    nobody_joins_anew_for_a_coordinator_that_has_ended,
    the_time_of_gathering_keeps_nobody_out,
    whoever_is_behind_is_told,
)
from samovar.sims.checkers.membership_over_lives import (
    a_former_acceptor_goes_with_its_life,
    a_lost_coordinator_is_accused_again,
    an_answer_shows_that_its_sender_is_there,
)
from samovar.sims.scenarios.scenario import Kind, Scenario
from samovar.sims.world.event_log import Entry, Fell, Heard, Told

SCENARIO = Scenario.plain(Settings(peers=3, device="cpu", patience_s=4.0))
ALL = ("peer-0", "peer-1", "peer-2")
INSTALL = Install(Decree(NOBODY, Version(0, 0), (), ()))
INSIDE = [(0.0, Decided(5, ALL[:2], ALL[2:])), (0.0, Followed(5)), (0.0, Moved(State.OUTSIDE, State.MEMBER))]


def found(check: Check, *events: tuple[float, object]) -> list[str]:
    return list(check(SCENARIO, [Entry(time_s, "0.0", event) for time_s, event in events]))


def behind(generation: int, *then: tuple[float, object], sender: str = "peer-2") -> Sequence[str]:
    heard = (2.0, Heard(sender, Suspicion(generation, "peer-1", "")))
    return found(whoever_is_behind_is_told, *INSIDE, heard, *then, (2.0, Asks("peer-1")))


def test_a_peer_that_is_behind_must_be_sent_the_view_in_which_it_is() -> None:
    assert behind(4, (2.0, Told("peer-2", INSTALL))) == []
    assert len(behind(4)) == 1
    assert len(behind(4, (2.0, Told("peer-1", INSTALL)))) == 1, "another one is sent it"
    assert behind(4, sender="peer-7") == [], "it is not in the view"
    assert behind(5) == []


def test_a_peer_that_hears_of_a_later_view_must_ask_for_it() -> None:
    assert behind(6, (2.0, Told("peer-2", Behind(5)))) == []
    assert len(behind(6)) == 1


def test_a_contact_must_hear_of_the_view_that_removed_a_newcomer() -> None:
    check, removed = a_contact_hears_by_which_view_a_newcomer_was_removed, (1.0, Overruled(6, ALL[1:]))
    assert found(check, removed, (2.0, Told("peer-1", INSTALL)), (2.0, Asks("peer-1"))) == []
    assert len(found(check, removed, (2.0, Asks("peer-1")))) == 1
    assert found(check, removed, (2.0, Asks("peer-5"))) == []


def test_the_time_of_a_change_before_the_start_must_not_count() -> None:
    check = the_time_of_gathering_keeps_nobody_out
    assert found(check, (0.0, Decided(2, ALL, (), True)), (1.0, Counted(0.5))) == []
    assert len(found(check, (0.0, Decided(2, ALL, (), False)), (1.0, Counted(0.5)))) == 1


def test_a_word_for_a_coordinator_must_be_recent() -> None:
    check, word = nobody_joins_anew_for_a_coordinator_that_has_ended, Heard("peer-2", Reaches(5, "peer-1"))
    assert found(check, (5.0, word), (6.0, VouchedFor("peer-1"))) == []
    assert len(found(check, (1.0, word), (6.0, VouchedFor("peer-1")))) == 1


def test_a_part_that_is_kept_though_its_hash_is_another_is_found() -> None:
    digest, check = blake2b(b"bytes", digest_size=32).digest(), a_part_that_is_kept_is_the_one_that_was_announced
    assert found(check, (0.0, Fetched(4, 7, b"bytes", digest))) == []
    assert len(found(check, (0.0, Fetched(4, 7, b"byte5", digest)))) == 1


def test_a_donor_that_gives_another_part_than_announced_is_found() -> None:
    assert len(found(a_donor_gives_the_parts_that_it_has_announced, (0.0, Served(4, 5)))) == 1
    assert found(a_donor_gives_the_parts_that_it_has_announced, (0.0, Served(4, 4))) == []


def test_a_given_up_peer_must_fetch_nothing() -> None:
    check, given_up = a_given_up_peer_fetches_nothing, (0.0, Moved(State.LEARNER, State.EXPELLED))
    assert len(found(check, given_up, (1.0, Fetches(4, 9, 4, False)))) == 1
    assert found(check, given_up, (0.5, Moved(State.EXPELLED, State.OUTSIDE)), (1.0, Fetches(4, 9, 4, False))) == []


def test_a_peer_must_take_no_earlier_state_than_it_wants() -> None:
    check, begins = no_earlier_state_is_taken_than_is_wanted, (0.0, Fetches(4, 9, 3, False))
    assert found(check, begins, (1.0, Committed(3, torch.zeros(1), None, 0.0))) == []
    assert len(found(check, begins, (1.0, Committed(2, torch.zeros(1), None, 0.0)))) == 1


def test_a_fetch_must_go_on_while_the_view_changes() -> None:
    check, begins = a_new_view_ends_no_fetch_of_the_same_state, (0.0, Fetches(4, 9, 4, True))
    assert len(found(check, begins, begins)) == 1
    assert found(check, begins, (1.0, Fetches(5, 8, 5, True)), begins) == [], "another state was wanted meanwhile"
    assert found(check, begins, (1.0, FetchFailed()), begins) == []


def test_a_member_that_answers_must_be_taken_to_be_there_however_late_it_answers() -> None:
    check = an_answer_shows_that_its_sender_is_there
    late = (2.0, Heard("peer-1", Promise(5, 10, 10, Version(0, 0), Version(0, 0), True, 0, None)))
    assert found(check, *INSIDE, late, (2.0, Answered("peer-1"))) == []
    assert len(found(check, *INSIDE, late, (2.1, Asks("peer-1")))) == 1


def test_a_lost_coordinator_must_be_accused_again_after_a_patience() -> None:
    check, lost = a_lost_coordinator_is_accused_again, (1.0, LostCoordinator("peer-0", False))
    later = (6.0, Asks("peer-2"))
    assert len(found(check, *INSIDE, lost, later)) == 1
    assert found(check, *INSIDE, lost, (5.0, LostCoordinator("peer-0", True)), later) == []
    assert found(check, *INSIDE, lost, (3.0, Followed(6)), later) == []


def test_a_former_acceptor_must_vote_where_its_life_is_a_member() -> None:
    check, begins, heard = a_former_acceptor_goes_with_its_life, (0.0, Bound(7, 5, 0, 0)), (1.0, HeardOf(6, 7))
    later = (6.0, Asks("peer-2"))
    assert len(found(check, begins, heard, later)) == 1
    assert found(check, begins, heard, (1.1, Bound(7, 6, 0, 0)), later) == []
    assert found(check, begins, (1.0, HeardOf(6, 0)), later) == [], "it is no member there"


def test_two_honest_members_of_different_views_of_a_generation_are_found_though_a_third_lies() -> None:
    four, without = ("peer-0", "peer-1", "peer-2", "peer-3"), ("peer-0", "peer-1", "peer-2", "peer-4")
    lies = Entry(0.0, "nemesis", Fell(Kind.HOSTILE, ("2.0",), 9.0))

    def wrong(life: str, *members: str) -> list[str]:
        log = [lies, Entry(1.0, "0.0", Installed(5, four, 3, ())), Entry(2.0, life, Installed(5, members, 3, ()))]
        return list(a_liar_moves_no_honest_member_apart(SCENARIO, log))

    assert len(wrong("1.0", *without)) == 1
    assert wrong("2.0", *without) == [], "what the liar itself believes does not matter"
    assert wrong("1.0", *four[:3]) == [], "it is too small to tell who lies"
    left_out = ("peer-1", "peer-2", "peer-3", "peer-4")
    assert len(wrong("1.0", *left_out)) == 1, "also where one has left the other out"


def test_a_view_whose_state_no_member_holds_is_found() -> None:
    check = a_view_goes_on_from_what_one_of_its_members_holds
    assert found(check, (1.0, Installed(4, ALL, 7, ALL[:1]))) == []
    assert len(found(check, (1.0, Installed(4, ALL, 7, ())))) == 1
