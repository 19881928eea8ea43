"""Checks of what a codec makes of contributions: of what each peer has sent, of what it has left out, and of the mean.
A check yields a line for each way in which its promise is broken.

Sources: Stich et al., "Sparsified SGD with memory" (NeurIPS 2018), Karimireddy et al., "Error feedback fixes SignSGD"
(ICML 2019): what a codec leaves out in one round is added to what is sent in the next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from ...peers.conversations.local_sgd_settings import LocalSGDSettings
from ...protocols.local_sgd.encoded import Encoded
from ...protocols.local_sgd.rounds import Committed, Contributed
from ...protocols.transfer.chunks import AttemptId
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, peer_of


def what_a_codec_leaves_out_is_sent_later(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """With a codec that remembers what it leaves out, a peer owes after each round what it had and did not send. It
    adds this to what it sends in the next round (of the same fragment), if the members are the same; else it forgets
    it."""
    yield from _wrong_residuals(entries)
    yield from _forgotten_residuals(LocalSGDSettings.of(scenario.settings).fragments, entries)


def a_coded_mean_is_of_what_was_sent(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """With a codec whose encodings are decoded by all, a committed result is the model before plus the weighted mean of
    what the members have sent. Judged only without an outer step and fragments, and not where a parameter was
    unfrozen."""
    own = LocalSGDSettings.of(scenario.settings)
    if own.outer.text == "plain" and own.fragments == 1:
        yield from _wrong_coded_means(entries)


def _wrong_residuals(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each encoding of which a part is neither sent nor owed afterwards, or is both."""
    for _, life, event in entries:
        if isinstance(event, Encoded):
            due, found = event.change.double() + event.owed.double(), event.sent.double() + event.left.double()
            scale = max(1.0, *(float(one.abs().max()) for one in (event.change, event.owed, event.sent)))
            if not torch.allclose(found, due, rtol=0, atol=1e-5 * scale):
                yield f"{life} neither sent nor owes a part of what it had for round {event.attempt[1]}"


def _forgotten_residuals(every: int, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each encoding that does not begin with what the peer owed after the round before, among the same
    members: and with nothing where the members have changed since, or it was not in that round. `every`: number of
    rounds from one to the next in which the same elements are averaged. What a process owes before it has first
    committed a round may be from a checkpoint, and is not judged. A model that has grown owes as much as before."""
    last: dict[tuple[str, int], Encoded | None] = {}
    now: dict[str, Encoded] = {}
    for _, life, event in entries:
        if isinstance(event, Encoded):
            now[life], (generation, round_), of = event, event.attempt, (life, event.attempt[1] % every)
            if of in last:
                before = last[of]
                follows = before is not None and before.attempt == (generation, round_ - every)
                due = before.left if before is not None and follows else torch.zeros_like(event.owed)
                grown = before is not None and before.grown != event.grown  # by elements that owe nothing
                if grown and every > 1:
                    continue  # the fragments are others now, and what they owe is forgotten
                if not (torch.isclose(due.norm(), event.owed.norm()) if grown else torch.equal(due, event.owed)):
                    yield f"{life} begins round {round_} in generation {generation} with another residual than it has"
        elif isinstance(event, Committed) and event.attempt is not None:
            of, encoded = (life, event.attempt[1] % every), now.get(life)
            last[of] = encoded if encoded is not None and encoded.attempt == event.attempt else None
            if not event.weight:
                del last[of]  # nobody contributed, and nothing is told of what each owes


def _wrong_coded_means(entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each committed model that is not the one before plus the weighted mean of what its peers have sent."""
    weights: dict[AttemptId, dict[str, float]] = defaultdict(dict)
    sent: dict[AttemptId, dict[str, Tensor]] = defaultdict(dict)
    models: dict[int, Tensor] = {}
    for _, life, event in entries:
        if isinstance(event, Contributed):
            weights[event.attempt][peer_of(life)] = event.weight
        elif isinstance(event, Encoded):
            sent[event.attempt][peer_of(life)] = event.sent
        elif isinstance(event, Committed):
            before, models[event.round] = models.get(event.round - 1), event.vector
            there = {} if event.attempt is None else {one: w for one, w in weights[event.attempt].items() if w > 0}
            if event.attempt is None or before is None or not there or not there.keys() <= sent[event.attempt].keys():
                continue
            moved = sum(sent[event.attempt][one].double() * weight for one, weight in there.items())
            if before.shape != event.vector.shape:
                continue  # a parameter was unfrozen, which the model before did not have
            due = before.double() + moved / sum(there.values())
            if not torch.allclose(event.vector.double(), due, rtol=0, atol=1e-4 * max(1.0, float(due.abs().max()))):
                yield f"round {event.round} at {life} is not the mean of what was sent"
