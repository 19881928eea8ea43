"""Minimising: a greedy search for a small scenario that still breaks the same promise. In each step many smaller
scenarios are tried, and the first that breaks the promise replaces the present one (delta debugging, Zeller &
Hildebrandt, TSE 2002)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

from ...peers.settings.link_text import one_of
from ...protocols.link_spec import LinkSpec
from ..conversations.simulation import simulation_of
from ..scenarios.scenario import FOR_ALL, TOY_SIZE, Fault, Group, Kind, Scenario, founded_by
from .verdict import Verdict, judge

T = TypeVar("T")

_PLAIN = LinkSpec(bandwidth_Bps=1.25e6, latency_s=0.01)
_STEP_S = 0.01
_SHORT_S = 0.1
"""The durations and starting times of faults, in seconds, are not made shorter than this."""
_TRIES = 5
"""Number of tries with other moments for the faults, because with fewer peers everything happens at other times."""
_RUNS_MAX = 400


def minimise(
    failed: Verdict,
    *,
    runs_max: int = _RUNS_MAX,
    progress: Callable[[Verdict | None], object] = lambda smaller: None,
) -> Verdict:
    """The verdict on the smallest scenario found that breaks the same promise as `failed`, after at most `runs_max`
    runs; `failed` itself if none is found. `progress` is called after each run: with the smaller scenario's verdict if
    it breaks that promise, else with None."""
    best, runs = failed, 0
    while True:
        for candidate in _smaller(best.scenario):
            if runs == runs_max:
                return best
            runs += 1
            verdict = judge(candidate)
            same = verdict.promise == failed.promise
            progress(verdict if same else None)
            if same:
                best = verdict
                break
        else:
            return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios that are simpler than `scenario`, beginning with the much simpler ones."""
    for faults in _fewer(scenario.faults):
        yield replace(scenario, faults=faults)
    for count in sorted({2, 3, 4, scenario.peers // 2, scenario.peers - 1}):
        if 2 <= count < scenario.peers:
            yield from _with_peers(scenario, count)
    for arrivals in _fewer(scenario.arrivals):
        settings = founded_by(scenario.settings, scenario.groups, arrivals)
        yield replace(scenario, arrivals=arrivals, settings=settings)
    if scenario.buggify:
        yield replace(scenario, buggify=False)
    if scenario.priorities is not None:
        yield replace(scenario, priorities=None)
        if scenario.priorities:
            yield replace(scenario, priorities=scenario.priorities // 2)
    if scenario.toy_size != TOY_SIZE:
        yield replace(scenario, toy_size=TOY_SIZE)
    if scenario.thaws:
        yield replace(scenario, thaws=False)
    if scenario.evaluates:
        yield replace(scenario, evaluates=False)
    if not all(group.dialable for group in scenario.groups):
        yield replace(scenario, groups=tuple(replace(group, dialable=True) for group in scenario.groups))
    plain = tuple(Group(peers=one.peers, link=_PLAIN, step_s=_STEP_S, role=one.role) for one in scenario.groups)
    if len({one.role for one in plain}) == 1:
        plain = (replace(plain[0], peers=scenario.peers),)
    if scenario.groups != plain or scenario.trunks:
        yield replace(scenario, groups=plain, trunks=())
    yield from _shorter(scenario)
    for index, fault in enumerate(scenario.faults):
        for simpler in _simpler(fault):
            yield replace(scenario, faults=(*scenario.faults[:index], simpler, *scenario.faults[index + 1 :]))


def _fewer(these: tuple[T, ...]) -> Iterator[tuple[T, ...]]:
    if these:
        yield ()
    if len(these) > 2:
        yield from (these[: len(these) // 2], these[len(these) // 2 :])
    if len(these) > 1:
        yield from (these[:index] + these[index + 1 :] for index in range(len(these)))


def _with_peers(scenario: Scenario, count: int) -> Iterator[Scenario]:
    """`scenario` with only `count` peers, and the same with faults and arrivals at earlier moments. Targets of faults
    are kept before latecomers, and these before other peers."""
    late, aimed = dict(scenario.arrivals), {target for fault in scenario.faults for target in fault.who}
    wanted = sorted(range(scenario.peers), key=lambda index: (index not in aimed, index not in late, index))
    # At least two are there from the start, and one of each role.
    there = [index for index in wanted if index not in late]
    roles = dict.fromkeys(scenario.group_of(index).role for index in there)
    founders = [next(index for index in there if scenario.group_of(index).role == role) for role in roles]
    founders += [index for index in there if index not in founders][: max(0, 2 - len(founders))]
    kept = sorted({*founders, *[index for index in wanted if index not in founders][: count - len(founders)]})
    fewer = _only(scenario, kept)
    yield fewer
    chance = random.Random(f"{scenario.settings.seed} {count}")
    for _ in range(_TRIES if fewer.faults or fewer.arrivals else 0):
        arrivals = tuple((index, round(chance.uniform(0.0, at_s), 3)) for index, at_s in fewer.arrivals)
        faults = tuple(_sooner(fault, chance.random()) for fault in fewer.faults)
        yield replace(fewer, arrivals=arrivals, faults=faults)


def _sooner(fault: Fault, factor: float) -> Fault:
    return replace(
        fault,
        at_s=None if fault.at_s is None else round(fault.at_s * factor, 3),
        at_event=None if fault.at_event is None else max(1, round(fault.at_event * factor)),
        at_step=None if fault.at_step is None else max(1, round(fault.at_step * factor)),
        at_message=None
        if fault.at_message is None
        else replace(fault.at_message, number=max(1, round(fault.at_message.number * factor))),
    )


def _only(scenario: Scenario, kept: Sequence[int]) -> Scenario:
    """`scenario` with only the peers whose numbers are in `kept`, renumbered from 0."""
    moved: dict[int | str, int] = {index: place for place, index in enumerate(kept)}
    groups, first = [], 0
    for group in scenario.groups:
        left = sum(first <= index < first + group.peers for index in kept)
        first += group.peers
        groups += [replace(group, peers=left)] if left else []
    if not any(group.dialable for group in groups):
        groups = [replace(group, dialable=True) for group in groups]
    faults = []
    for fault in scenario.faults:
        who = tuple(moved.get(target, target) for target in fault.who if target in moved or isinstance(target, str))
        if who or not fault.who or fault.kind in FOR_ALL:
            faults.append(replace(fault, who=who))
    arrivals = tuple((moved[index], at_s) for index, at_s in scenario.arrivals if index in moved)
    sites = scenario.settings.site and ";".join(one_of(scenario.settings.site, index) for index in kept)
    settings = founded_by(scenario.settings.changed(site=sites), groups, arrivals)
    return replace(scenario, groups=tuple(groups), arrivals=arrivals, faults=tuple(faults), settings=settings)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """`scenario` with fewer local steps, or with simpler settings."""
    settings = scenario.settings
    if (steps := settings.steps_max or 0) > 1:
        yield replace(scenario, settings=settings.changed(steps=steps // 2))
        yield replace(scenario, settings=settings.changed(steps=steps * 3 // 4))
    values = settings.plain()
    for plainer in (*simulation_of(settings).simpler, {"checkpoint_every_s": 0.0}):
        if values.keys() >= plainer.keys() and any(values[name] != value for name, value in plainer.items()):
            yield replace(scenario, settings=settings.changed(**plainer))


def _simpler(fault: Fault) -> Iterator[Fault]:
    """`fault` with fewer targets, at an earlier moment, or with a shorter duration."""
    if len(fault.who) > 1 and fault.kind is not Kind.SEPARATE:
        yield from (replace(fault, who=(target,)) for target in fault.who)
    if fault.for_s > 2 * _SHORT_S:
        yield replace(fault, for_s=round(fault.for_s / 2, 3))
    if fault.at_s is not None and fault.at_s > 2 * _SHORT_S:
        yield replace(fault, at_s=round(fault.at_s / 2, 3))
    for name in ("at_event", "at_step"):
        if (getattr(fault, name) or 0) > 1:
            yield replace(fault, **{name: getattr(fault, name) // 2})
    if fault.at_message is not None and fault.at_message.number > 1:
        yield replace(fault, at_message=replace(fault.at_message, number=fault.at_message.number // 2))
