"""The promises of gossip, as predicates over the event log of a simulation. A predicate yields a line for each way in
which its promise is broken."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

import torch

from ...peers.conversations.gossip_settings import GossipSettings
from ...protocols.gossip.estimates import Estimated
from ...protocols.gossip.graph import Placed
from ...protocols.gossip.messages import Published
from ...protocols.gossip.mixing import CaughtUp, Mixed
from ...protocols.gossip.shares import BeganAnew, CameBack
from ...protocols.members.states import Moved, State
from ...protocols.members.view import Decided
from ...protocols.testpoints import Became
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, id_of
from .common import Check


def rounds_are_mixed_one_by_one(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer's rounds follow each other without a gap. There is one exception: a peer may continue from the others'
    models, of a later round."""
    last: dict[str, int] = {}
    for _, life, event in entries:
        if isinstance(event, Mixed):
            if life in last and event.round != last[life] + 1:
                yield f"{life} mixed round {event.round} after {last[life]}"
            last[life] = event.round
        elif isinstance(event, CaughtUp):
            if event.round <= last.get(life, -1):
                yield f"{life} went on from round {event.round} after {last[life]}"
            last[life] = event.round


def a_mix_is_of_what_was_published(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A mix is, up to rounding, the weighted sum of the peer's own model and of models of its neighbours. Each
    neighbour's model is one that it has published in the round that the peer was told, and counts once. The weights sum
    to 1, or, where vectors are split, each weight is 1."""
    published: dict[tuple[str, int], list[torch.Tensor]] = defaultdict(list)
    for _, life, event in entries:
        if isinstance(event, Published):
            published[id_of(life), event.round].append(event.vector)
        elif isinstance(event, Mixed):
            weights = [event.own_weight, *event.weights.values()]
            splits = all(weight == 1 for weight in weights)
            if not splits and (abs(sum(weights) - 1) > 1e-9 or min(weights) < -1e-9):
                yield f"{life} mixed round {event.round} with weights {weights}"
            elif not _is_sum(event, published):
                yield f"{life} mixed in round {event.round} what nobody had published"


def _is_sum(event: Mixed, published: dict[tuple[str, int], list[torch.Tensor]]) -> bool:
    sums = [event.own.double() * event.own_weight]
    for peer, weight in event.weights.items():
        models = published[peer, event.rounds[peer]]
        sums = [one + weight * model.double() for one in sums for model in models]
    return any(torch.allclose(event.vector.double(), one, rtol=1e-5, atol=1e-6) for one in sums)


def an_estimate_has_the_same_bits_on_both_sides(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Where vectors are sent as encoded differences, a peer's estimate of another's vector has the bits that the other
    has published in that round. Else the mean of all models would move (Koloskova et al., 2019)."""
    published: dict[tuple[str, int], list[torch.Tensor]] = defaultdict(list)
    for _, life, event in entries:
        if isinstance(event, Published):
            published[id_of(life), event.round].append(event.vector)
        elif isinstance(event, Estimated):
            theirs = published[event.giver, event.round]
            if not any(torch.equal(event.vector, vector) for vector in theirs):
                yield f"{life} has another estimate of {event.giver} in round {event.round} than {event.giver} itself"


def neighbours_give_each_other_the_same_weight(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """In an undirected graph two neighbours that know the same peers in a round give each other's model the same
    weight. Else a mix would move the mean of all models (Xiao and Boyd, "Fast linear iterations for distributed
    averaging", 2004)."""
    given: dict[tuple[object, str, str], float] = {}
    for _, life, event in entries:
        if isinstance(event, Placed):
            me, graph = id_of(life), (event.round, event.peers)
            for peer, weight in event.weights.items():
                other = given.get((graph, peer, me), weight)
                if abs(other - weight) > 1e-9:
                    yield f"{life} gives the model of {peer} the weight {weight:g}, which gives its model {other:g}"
                given[graph, me, peer] = weight


def no_model_weighs_more_than_its_links_allow(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Where each peer has links to a few others, and takes the models of all of them, none gives a model more weight
    than 1 / (1 + n), where n is the number of links that its peer has told with it. So none counts for more than one in
    the next mean. A round that two processes of a peer have published is not judged."""
    own = GossipSettings.of(scenario.settings)
    if own.membership_kind().links(scenario.settings.peers) is None or own.algorithm.value.drawn is not None:
        return
    links: dict[tuple[str, int], dict[str, int]] = defaultdict(dict)
    for _, life, event in entries:
        if isinstance(event, Published):
            links[id_of(life), event.round][life] = event.told.links
        elif isinstance(event, Mixed) and event.own_weight < 1:  # shares, which sum to one, have weight 1 each
            for peer, round in event.rounds.items():
                told, weight = [*links[peer, round].values()], event.weights[peer]
                if len(told) == 1 and weight > (most := 1 / (1 + told[0])) + 1e-9:
                    yield f"{life} gives round {round} of {peer} the weight {weight:g}, beyond {most:g}"


def a_share_is_taken_once_or_comes_back(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Where a vector is split into shares, each share is either in one mix of the peer that takes it, or counts for its
    sender again, never both. Not judged are: a taker that was restarted, that does not come to the end, or without
    which the others have gone on by then, because its shares are lost with it; and a round that two processes of the
    sender have published."""
    taken: dict[str, Counter[tuple[str, int]]] = defaultdict(Counter)
    back: set[tuple[str, int, str]] = set()
    published: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
    to_the_end: set[str] = set()
    members: tuple[str, ...] | None = None
    for _, life, event in entries:
        if isinstance(event, Published):
            published[id_of(life), event.round][life] = None
        elif isinstance(event, Mixed) and event.weights and event.own_weight == 1:
            for each in event.rounds.items():
                if len(givers := [*published[each]]) == 1:
                    taken[life][givers[0], each[1]] += 1
        elif isinstance(event, BeganAnew):
            taken[life].clear()
        elif isinstance(event, Decided):
            members = event.members
        elif isinstance(event, CameBack):
            back.add((life, event.round, event.taker))
        elif _ends(life, event, members):
            to_the_end.add(life)
    for life in to_the_end:
        for (giver, round), times in taken[life].items():
            if times > 1:
                yield f"{life} took the share of {giver} in round {round} {times} times"
            if (giver, round, id_of(life)) in back:
                yield f"{life} took the share of {giver} in round {round}, which came back too"


def a_share_that_came_back_counts_for_its_sender(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Where a vector is split into shares, so that the sum over all peers stays what it is, a peer's model after a
    round is that of the mix and of all its own shares that have come back since its last mix. The last element of a
    vector is its weight, by which the others are divided (Assran et al., 2019)."""
    if not GossipSettings.of(scenario.settings).algorithm.value.splits:
        return
    shares: dict[tuple[str, int], torch.Tensor] = {}
    back: dict[str, list[torch.Tensor]] = defaultdict(list)
    mixed: dict[str, Mixed] = {}
    for _, life, event in entries:
        if isinstance(event, Published):
            shares[life, event.round] = event.vector
        elif isinstance(event, CameBack):
            back[life].append(shares[life, event.round])
        elif isinstance(event, BeganAnew):
            back[life].clear()
        elif isinstance(event, Mixed):
            mixed[life] = event
        elif isinstance(event, Became) and (mix := mixed.pop(life, None)) is not None and mix.round == event.version:
            total = torch.stack([mix.vector.double(), *(share.double() for share in back.pop(life, ()))]).sum(0)
            if not torch.allclose(event.vector.double(), total[:-1] / total[-1], rtol=1e-4, atol=1e-5):
                yield f"the model of {life} after round {event.version} lacks a share, or has one too many"


def _ends(life: str, event: object, members: tuple[str, ...] | None) -> bool:
    """Whether `event` is that the peer of `life` has finished, while it was one of `members`, those of the last view;
    None: members agree on no views."""
    is_done = isinstance(event, Moved) and event.now is State.FINISHED
    return is_done and (members is None or id_of(life) in members)


GOSSIP: tuple[Check, ...] = (
    rounds_are_mixed_one_by_one,
    a_mix_is_of_what_was_published,
    an_estimate_has_the_same_bits_on_both_sides,
    neighbours_give_each_other_the_same_weight,
    no_model_weighs_more_than_its_links_allow,
    a_share_is_taken_once_or_comes_back,
    a_share_that_came_back_counts_for_its_sender,
)
