"""The promises of local SGD on rounds, generations, committed results, their means and weights, as predicates over the
event log of a simulation. A predicate yields a line for each way in which its promise is broken. A view is a list of
members that all agree on, its generation is its number, and an attempt is one try to average a round."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import torch

from ...aggregation.outer import Momentum
from ...peers.conversations.local_sgd_settings import LocalSGDSettings
from ...protocols.local_sgd.rounds import Committed, Computed, Contributed, Installed, WentOn
from ...protocols.members.states import Moved, State
from ...protocols.transfer.chunks import AttemptId
from ...protocols.transfer.snapshot_transfer import Fetched
from ..scenarios.scenario import Scenario
from ..world.event_log import Began, Entry, id_of, peer_of
from .common import Check, peers_end_together
from .local_sgd_codecs import a_coded_mean_is_of_what_was_sent, what_a_codec_leaves_out_is_sent_later
from .local_sgd_endings import unfinished
from .local_sgd_means import (
    a_site_sums_again_with_all_who_may_have_the_first_mean,
    all_who_compute_an_attempt_compute_the_same,
    is_mean,
    no_vote_counts_after_a_promise,
    wrong_outer_steps,
    wrong_site_means,
)
from .local_sgd_periods import an_adaptive_period_falls, every_contribution_tells_a_speed

_FETCHED_MAX = 2
_WITHOUT_VOTES = (State.OUTSIDE, State.JOINING, State.LEARNER)
_WITH_VOTES = (State.MEMBER, State.CHANGING, State.LEADING)


def a_part_that_has_come_is_not_fetched_again(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer that fetches a state keeps each part that has arrived, even if it continues with another donor. A part may
    arrive twice, because it may arrive just after the peer has asked another donor for it. Broken by each further
    arrival of the same part of the same version at the same process; the reason of the second one is not judged."""
    came: Counter[tuple[str, int, int]] = Counter()
    for _, life, event in entries:
        if isinstance(event, Fetched):
            came[life, event.version, event.part] += 1
            if came[life, event.version, event.part] > _FETCHED_MAX:
                yield f"{life} got part {event.part} of version {event.version} {_FETCHED_MAX + 1} times"


def all_who_commit_a_round_commit_the_same_bits(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All peers that commit a round have the same model afterwards, to the last bit. Judged from the first commit that
    is made in this run on: a state fetched from a checkpoint before may be lost again."""
    first: dict[int, tuple[str, bytes]] = {}
    begun = False
    for _, life, event in entries:
        begun = begun or (isinstance(event, Committed) and event.attempt is not None)
        if isinstance(event, Committed) and begun:  # earlier, a checkpoint's state may be fetched and lost again
            bits = event.vector.numpy().tobytes()
            who, theirs = first.setdefault(event.round, (life, bits))
            if theirs != bits:
                yield f"round {event.round} ends differently for {who} and {life}"


def every_contribution_counts_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A committed result is the weighted mean of the members' contributions to that attempt, each counted once. Without
    contributions of a positive weight the model stays unchanged. With a codec, an outer step or fragments only the sum
    of the weights is checked."""
    brought: dict[AttemptId, dict[str, Contributed]] = defaultdict(dict)
    models: dict[int, torch.Tensor] = {}
    for _, life, event in entries:
        if isinstance(event, Committed):
            models[event.round] = event.vector
        if isinstance(event, Contributed):
            brought[event.attempt][peer_of(life)] = event
        elif isinstance(event, Committed) and event.attempt is not None:
            there = [each for each in brought[event.attempt].values() if each.weight > 0]
            if not there:
                if event.weight or not torch.equal(event.vector, models.get(event.round - 1, event.vector)):
                    yield f"round {event.round} at {life} is the mean of what nobody brought"
                continue
            weight = sum(each.weight for each in there)
            if not math.isclose(event.weight, weight, rel_tol=1e-5):  # a sum of fractions, in the model's dtype
                yield f"round {event.round} at {life} has weight {event.weight:g}, its members brought {weight:g}"
                continue
            own = LocalSGDSettings.of(scenario.settings)
            if own.codec.value is not None or own.outer.text != "plain" or own.fragments > 1:
                continue  # what a codec sends differs from the contributions, and an outer step's model from their mean
            if not is_mean(event.vector, there):
                yield f"round {event.round} at {life} is not the mean of what was brought"


def an_outer_step_goes_on_from_the_one_before(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A committed model is the one that the outer step's formula gives for the round's mean, the model before it and
    the velocity before it. Judged only for outer steps with momentum, without a codec, fragments and averaged optimizer
    states."""
    own = LocalSGDSettings.of(scenario.settings)
    plain = own.codec.value is None and own.fragments == 1 and own.optimizer_state() != "averaged"
    if isinstance(own.outer.value, Momentum) and plain:
        yield from wrong_outer_steps(own.outer.value, entries)


def a_peer_that_was_left_behind_goes_on_from_the_others_model(
    scenario: Scenario, entries: Sequence[Entry]
) -> Iterator[str]:
    """A peer that has fetched a round's model from another peer loads that model, to the bit, before it contributes
    with a weight above 0 again, unless it commits another round before. What it had of its own, such as its steps since
    its last contribution, is lost."""
    fetched: dict[str, Committed] = {}
    for _, life, event in entries:
        if isinstance(event, Committed):
            fetched.pop(life, None)
            if event.attempt is None:
                fetched[life] = event
        elif isinstance(event, WentOn) and life in fetched and torch.equal(event.vector, fetched[life].vector):
            del fetched[life]
        elif isinstance(event, Contributed) and event.weight > 0 and life in fetched:
            yield f"{life} contributes to round {event.attempt[1]}, and has not loaded round {fetched[life].round}"


def a_site_takes_the_mean_of_what_each_brought_once(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A site's mean that a peer adopts is the weighted mean of the contributions to that attempt, with equal bits on
    all peers that adopt it. If the means of two attempts at one averaging point of one round are adopted, no peer is a
    member of both attempts. A site: a group of peers that average among themselves at points within a round."""
    yield from wrong_site_means(entries)


def nothing_of_an_old_generation_is_applied(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer commits only results of its present generation, or the result that was handed on by the change to this
    generation.

    Generations and rounds never decrease, with two exceptions. A run that died before its first round may be founded
    anew, with generations from 1 on; a peer that has left its view may then go on to one of either run. A resumed run
    may give up a checkpoint's round that too few peers have, until it has finished a round itself (`Decree.given`).
    """
    views: dict[str, Installed] = {}
    rounds: dict[str, int] = {}
    made = 0
    foundings, founded = 0, dict[str, int]()
    for _, life, event in entries:
        if isinstance(event, Installed):
            foundings += event.generation == 1 and not any(rounds.values())
            before = views.get(life)
            if before is not None and event.generation <= before.generation and founded[life] == foundings:
                yield f"{life} went from generation {before.generation} to {event.generation}"
            views[life], founded[life] = event, foundings
        elif isinstance(event, Moved):
            if event.now is State.OUTSIDE and foundings > 1 and not any(rounds.values()):
                views.pop(life, None)
        elif isinstance(event, Committed):
            given_up = event.attempt is None and rounds.get(life, 0) > made
            if not given_up and event.round < rounds.get(life, 0) + (event.attempt is not None):
                yield f"{life} committed round {event.round} after round {rounds[life]}"
            rounds[life] = event.round
            made = made if event.attempt is None else max(made, event.round)
            view = views.get(life)
            if event.attempt is None or view is None or event.attempt[0] == view.generation:
                continue
            if event.round != view.round or id_of(life) not in view.donors:
                yield f"{life} committed round {event.round} of generation {event.attempt[0]} in {view.generation}"


def one_generation_has_one_view(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All peers of a generation have the same members and continue from the same round. Not judged where the setting
    `quorum` is given.

    A run that died before its first round may be founded anew, with generations from 1 on, while views of the former
    run are still recorded. There are then two runs until a round is committed, and at most one of them can commit.
    """
    if scenario.settings.quorum is not None:
        return  # with a quorum of half or less, both halves of a split network may continue
    views: dict[int, tuple[str, Installed]] = {}
    foundings, begun = 0, False
    for _, life, event in entries:
        begun = begun or isinstance(event, Committed)
        if isinstance(event, Installed):
            if event.generation == 1 and len(event.members) == 1:
                views.clear()
                foundings += 1
            if foundings > 1 and not begun:
                continue
            first, view = views.setdefault(event.generation, (life, event))
            if (view.members, view.round) != (event.members, event.round):
                yield f"generation {event.generation}: {_view(view)} for {first}, {_view(event)} for {life}"


def _view(view: Installed) -> str:
    return f"{','.join(peer.removeprefix('peer-') for peer in view.members)} from round {view.round}"


def what_is_committed_more_than_half_have(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """More than half of an attempt's members have its result when it is committed. There are two exceptions: a result
    that is handed on by a change of the view, which more than half have agreed on, and a peer that is alone. Not judged
    where the setting `quorum` is given."""
    if scenario.settings.quorum is not None:
        return
    members: dict[AttemptId, int] = {}
    generation: dict[str, int] = {}
    have: dict[AttemptId, set[str]] = defaultdict(set)
    for _, life, event in entries:
        if isinstance(event, Contributed):
            members[event.attempt] = len(event.members)
        elif isinstance(event, Computed):
            have[event.attempt].add(peer_of(life))
        elif isinstance(event, Installed):
            generation[life] = event.generation
        elif isinstance(event, Committed) and event.attempt is not None:
            handed_on, have_it = event.attempt[0] != generation.get(life), len(have[event.attempt])
            alone = members.get(event.attempt) == 1
            if not (handed_on or alone) and 2 * have_it <= members.get(event.attempt, 0):
                yield f"{life} committed round {event.round} when {have_it} of {members[event.attempt]} had it"


def nobody_is_a_member_before_it_has_a_result(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once a view continues from an averaged round, a newcomer is a learner, which has no vote, until it has the
    committed state, fetched or from a checkpoint. A newcomer that alone holds the state from which all continue is a
    member at once."""
    first, averaged, late = 0, False, set[int]()
    views, has = dict[str, Installed](), set[str]()
    for _, life, event in entries:
        if isinstance(event, Committed):
            averaged = averaged or event.attempt is not None
            has.add(life)
        elif isinstance(event, Installed):
            views[life] = event
            first = first if averaged else max(first, event.round)
            late |= {event.generation} if event.round > first else set()
        elif isinstance(event, Began):
            has |= {life} if event.version else set()
        elif isinstance(event, Moved) and event.now is State.LEARNER:
            # All peers have the state of the first round, but may learn late of the view that begins with it.
            has |= {life} if len(late) <= 1 else set()
        elif isinstance(event, Moved) and event.before in _WITHOUT_VOTES and event.now in _WITH_VOTES:
            view, learned = views.get(life), event.before is State.LEARNER and life in has
            if view is not None and view.round > first and not learned and id_of(life) not in view.donors:
                yield f"{life} was {event.before}, is a member of generation {view.generation} and has no result"


def a_peer_that_has_promised_commits_nothing_more(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that has promised to follow a ballot commits no further result of its generation, except one that the
    next view hands on. It may hear of the verdict at the same time as of the ballot. A member that is alone needs no
    verdict."""
    promised_s: dict[str, float] = {}
    views: dict[str, Installed] = {}
    for time_s, life, event in entries:
        if isinstance(event, Installed):
            views[life] = event
            promised_s.pop(life, None)
        elif isinstance(event, Moved):
            if event.now in (State.CHANGING, State.LEADING):
                promised_s.setdefault(life, time_s)
            else:
                promised_s.pop(life, None)
        elif isinstance(event, Committed) and event.attempt is not None and life in views:
            view = views[life]
            late = time_s > promised_s.get(life, math.inf)
            if late and event.attempt[0] == view.generation and len(view.members) > 1:
                yield f"{life} committed round {event.round} at {time_s:.3f} s, after its promise in {view.generation}"


def a_given_up_peer_contributes_no_more(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Until it is admitted again, a peer that was expelled or has failed contributes to no attempt, because it would
    not learn the attempt's outcome."""
    now: dict[str, State] = {}
    for _, life, event in entries:
        if isinstance(event, Moved):
            now[life] = event.now
        elif isinstance(event, Contributed) and now.get(life) in (State.EXPELLED, State.FAILED):
            yield f"{life} begins an attempt at round {event.attempt[1]}, though it is {now[life]}"


def living_peers_finish(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Once enough peers can continue together, at least one ends the run, and no admitted peer gives up, but for one
    whose numbers were spoiled, or that was declared dead and returns after the others have ended the run."""
    yield from unfinished(scenario, entries)


LOCAL_SGD: tuple[Check, ...] = (
    a_part_that_has_come_is_not_fetched_again,
    all_who_commit_a_round_commit_the_same_bits,
    all_who_compute_an_attempt_compute_the_same,
    every_contribution_tells_a_speed,
    every_contribution_counts_once,
    an_outer_step_goes_on_from_the_one_before,
    a_peer_that_was_left_behind_goes_on_from_the_others_model,
    what_a_codec_leaves_out_is_sent_later,
    a_coded_mean_is_of_what_was_sent,
    an_adaptive_period_falls,
    a_site_takes_the_mean_of_what_each_brought_once,
    a_site_sums_again_with_all_who_may_have_the_first_mean,
    nothing_of_an_old_generation_is_applied,
    one_generation_has_one_view,
    what_is_committed_more_than_half_have,
    nobody_is_a_member_before_it_has_a_result,
    a_peer_that_has_promised_commits_nothing_more,
    no_vote_counts_after_a_promise,
    a_given_up_peer_contributes_no_more,
    living_peers_finish,
    peers_end_together,
)
