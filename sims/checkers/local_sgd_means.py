"""Checks of adopted sums, means and outer steps against the contributions to them. A check yields a line for each way
in which its promise is broken. A view is a list of members that all agree on, its generation is its number, an attempt
is one try to average a round, and a turn is a point of a round at which the peers of a site average among
themselves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

from ...aggregation.outer import Momentum
from ...protocols.local_sgd.commit import Heeded
from ...protocols.local_sgd.rounds import (
    Committed,
    Computed,
    Contributed,
    Installed,
    SiteAttemptId,
    SiteCommitted,
    SiteContributed,
)
from ...protocols.members.view import Followed, Promised
from ...protocols.transfer.chunks import AttemptId
from ...protocols.transport import PeerId
from ..scenarios.scenario import Kind, Scenario
from ..world.event_log import Entry, Fell, peer_of


def all_who_compute_an_attempt_compute_the_same(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """All members that have the sum of an attempt have the same one, to the last bit, unless a peer's numbers were
    spoiled."""
    if any(isinstance(event, Fell) and event.kind == Kind.SPOIL for *_, event in entries):
        return
    first: dict[AttemptId, tuple[str, int]] = {}
    for _, life, event in entries:
        if isinstance(event, Computed):
            who, theirs = first.setdefault(event.attempt, (life, event.fingerprint))
            if theirs != event.fingerprint:
                yield f"{who} and {life} have different sums in attempt {event.attempt}"


def no_vote_counts_after_a_promise(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A member that has promised to follow a ballot for the next view, and with it told which result it holds, lets no
    vote and no verdict of its generation count any more."""
    promised: dict[str, int] = {}
    for time_s, life, event in entries:
        if isinstance(event, Promised):
            promised[life] = event.generation
        elif isinstance(event, Followed):
            promised.pop(life, None)
        elif isinstance(event, Heeded) and promised.get(life) == event.generation:
            yield f"{life} lets a vote count at {time_s:.3f} s, after its promise in generation {event.generation}"


def a_site_sums_again_with_all_who_may_have_the_first_mean(
    scenario: Scenario, entries: Sequence[Entry]
) -> Iterator[str]:
    """A peer that has begun to sum with others at a turn sums again at that turn only with all of them that are still
    members of the view: one that is left out may have taken the first mean, and would count twice."""
    members: dict[str, tuple[PeerId, ...]] = {}
    last: dict[str, SiteContributed] = {}
    for _, life, event in entries:
        if isinstance(event, Installed):
            members[life] = event.members
        elif isinstance(event, SiteContributed):
            before = last.get(life)
            last[life] = event
            if before is None or before.attempt[1:] != event.attempt[1:]:
                continue
            if out := {*before.members} & {*members.get(life, ())} - {*event.members}:
                yield f"{life} sums again at turn {event.attempt[2]} of round {event.attempt[1]} without {min(out)}"


def wrong_site_means(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each site mean that is not the mean of its contributions, that differs between peers, or that counts a
    peer twice."""
    brought: dict[SiteAttemptId, dict[str, SiteContributed]] = defaultdict(dict)
    taken: dict[tuple[int, int], dict[frozenset[str], tuple[str, torch.Tensor]]] = defaultdict(dict)
    for _, life, event in entries:
        if isinstance(event, SiteContributed):
            brought[event.attempt][life] = event
        elif isinstance(event, SiteCommitted):
            _, round_, point = event.attempt
            what, all_there = f"turn {point} of round {round_}", brought[event.attempt]
            members = all_there[life].members if life in all_there else ()
            there = {one: each for one, each in all_there.items() if each.members == members}
            if not members or len(there) != len(members):
                yield f"{what} at {life} has {len(members)} members, of whom {len(there)} brought anything"
                continue
            if not is_mean(event.vector, list(there.values())):
                yield f"{what} at {life} is not the mean of what was brought"
            for others, (first, vector) in taken[round_, point].items():
                if others == there.keys() and not torch.equal(vector, event.vector):
                    yield f"{what} ends differently for {first} and {life}"
                if others != there.keys() and (both := others & there.keys()):
                    yield f"{what} counts {min(both)} twice, for {first} and {life}"
            taken[round_, point].setdefault(frozenset(there), (life, event.vector))


def wrong_outer_steps(outer: Momentum, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each committed model that is not the outer step's. Its velocity is not in the log: that of a round is
    found from the models before and after it and from the mean, and compared with what the velocity before makes of it.
    """
    brought: dict[AttemptId, dict[str, Contributed]] = defaultdict(dict)
    models: dict[int, torch.Tensor] = {}
    velocities: dict[int, torch.Tensor] = {}
    for _, life, event in entries:
        if isinstance(event, Contributed):
            brought[event.attempt][peer_of(life)] = event
        elif isinstance(event, Committed):
            models[event.round] = event.vector.double()
            before = models.get(event.round - 1)
            there = [] if event.attempt is None else [one for one in brought[event.attempt].values() if one.weight > 0]
            if before is None or not there:
                continue
            if before.shape != models[event.round].shape:  # a parameter was unfrozen: nothing is known of its velocity
                velocities.clear()
                continue
            difference = before - _mean(there)
            moved = (before - models[event.round]) / outer.rate
            velocity = (moved - difference) / outer.momentum if outer.nesterov else moved
            velocities[event.round] = velocity
            if (last := velocities.get(event.round - 1)) is None:
                continue
            expected = outer.momentum * last + difference
            if not torch.allclose(velocity, expected, rtol=0, atol=1e-4 * max(1.0, float(before.abs().max()))):
                yield f"round {event.round} at {life} is not where the outer step leads"


def is_mean(vector: torch.Tensor, brought: Sequence[Contributed | SiteContributed]) -> bool:
    """Whether `vector` [n] is the weighted mean of the contributions `brought`, up to 1e-5 times their largest
    element, or 1e-5 if that is larger."""
    scale = max(float(each.vector.abs().max()) for each in brought)
    return torch.allclose(vector.double(), _mean(brought), rtol=0, atol=1e-5 * max(1.0, scale))


def _mean(brought: Sequence[Contributed | SiteContributed]) -> torch.Tensor:
    """The weighted mean [n] of the contributions, in float64."""
    total = torch.stack([each.vector.double() * each.weight for each in brought]).sum(0)
    return total / sum(each.weight for each in brought)
