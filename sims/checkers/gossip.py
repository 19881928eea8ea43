"""The promises of gossip, as predicates over the event log of a simulation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

from ...protocols.gossip.exchange import Published
from ...protocols.gossip.mixing import CaughtUp, Mixed
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, peer_of
from .common import Check


def rounds_are_mixed_one_by_one(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """A peer's rounds follow each other without a gap, unless it goes on from the others' models, which are newer."""
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
    """A mix is the weighted sum of the peer's own model and of models that its neighbours have published in the rounds
    that it was told, each once, with weights of at most 1 in all."""
    published: dict[tuple[str, int], list[torch.Tensor]] = defaultdict(list)
    for _, life, event in entries:
        if isinstance(event, Published):
            published[f"peer-{peer_of(life)}", event.round].append(event.vector)
        elif isinstance(event, Mixed):
            rest = 1.0 - sum(event.weights.values())
            if rest < 0 or any(weight <= 0 for weight in event.weights.values()):
                yield f"{life} mixed round {event.round} with weights {dict(event.weights)}"
            elif not _is_sum(event, rest, published):
                yield f"{life} mixed in round {event.round} what nobody had published"


def _is_sum(event: Mixed, rest: float, published: dict[tuple[str, int], list[torch.Tensor]]) -> bool:
    sums = [event.own.double() * rest]
    for peer, weight in event.weights.items():
        models = published[peer, event.rounds[peer]]
        sums = [one + weight * model.double() for one in sums for model in models]
    return any(torch.allclose(event.vector.double(), one, rtol=1e-5, atol=1e-6) for one in sums)


GOSSIP: tuple[Check, ...] = (rounds_are_mixed_one_by_one, a_mix_is_of_what_was_published)
