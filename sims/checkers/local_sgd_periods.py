"""Checks of the periods that a policy has chosen, and of the peers' own pace, from the rounds in the log. A check
yields a line for each way in which its promise is broken."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...aggregation.periods.adacomm import AdaComm
from ...peers.conversations.local_sgd_settings import LocalSGDSettings
from ...protocols.local_sgd.rounds import Committed, Contributed
from ..scenarios.scenario import Scenario
from ..world.event_log import Entry, Resumed


def an_adaptive_period_falls(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """With the policy AdaComm, the period is shorter after each block of rounds than in it, until it is 1, and stays
    within a block: also where the loss does not fall (Wang and Joshi, 2019, section 4.2). Assumes a constant learning
    rate. A resumed run is not judged."""
    policy = LocalSGDSettings.of(scenario.settings).period.value
    if isinstance(policy, AdaComm):
        yield from _periods_that_stay(policy, entries)


def every_contribution_tells_a_speed(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    """Where each peer has its own pace, and once the peers have agreed on a speed, no contribution tells the speed 0: a
    peer that has measured none yet tells the agreed one. Contributions without weight or local steps are not judged."""
    if LocalSGDSettings.of(scenario.settings).pace != "own":
        return
    for _, life, event in entries:
        if not isinstance(event, Contributed) or event.weight == 0 or event.steps == 0:
            continue
        if any(event.agreed) and not all(event.speeds):
            yield f"{life} tells no speed in round {event.attempt[1]}, where {event.agreed} were agreed on"


def _periods_that_stay(policy: AdaComm, entries: Sequence[Entry]) -> Iterator[str]:
    """A line for each round that closes a block and after which the period is no shorter, or that closes none and after
    which it is another one. The learning rate is constant. Rounds without contributions do not count. A resumed run is
    not judged, because its open block began earlier."""
    if entries and isinstance(entries[0].event, Resumed):
        return
    rounds, began_s, period, made = 0, 0.0, policy.initial, 0
    for _, life, event in entries:
        if not isinstance(event, Committed) or event.attempt is None or event.round <= made or not event.period:
            continue
        if event.round != made + 1:
            return  # a peer that had resumed the run from a checkpoint began it
        made = event.round
        if not event.weight:
            continue
        rounds += 1
        closes = rounds >= policy.rounds_min and event.elapsed_s - began_s >= policy.block_s
        falls = event.period < period or event.period == period == 1
        if falls if closes else event.period == period:
            if closes:
                rounds, began_s, period = 0, event.elapsed_s, event.period
            continue
        yield f"the period after round {event.round} of {life} is {event.period}, it was {period}"
