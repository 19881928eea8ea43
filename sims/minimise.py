"""Minimising: the smallest scenario that still breaks the same promise, by greedy search: each time the first of many
smaller ones that does takes the place of the one before (delta debugging, Zeller & Hildebrandt, TSE 2002)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import TypeVar

from ..peers.task import Task
from .links import LinkSpec
from .scenario import FOR_ALL, Fault, Group, Scenario
from .verdict import Verdict, judge

T = TypeVar("T")

_PLAIN = LinkSpec(bandwidth_Bps=1.25e6, latency_s=0.01)
_STEP_S = 0.01
_SHORT_S = 0.1
"""Faults, and what comes before them, are not made shorter than that."""
_SEEDS = 3
"""Another number of peers is another run: in how many of those to look for the failure."""
_RUNS_MAX = 400


def minimise(
    failed: Verdict,
    task: Task,
    *,
    runs_max: int = _RUNS_MAX,
    progress: Callable[[Verdict | None], object] = lambda smaller: None,
) -> Verdict:
    """The verdict on the smallest scenario found that breaks the same promise as `failed`, after at most `runs_max`
    runs. `progress` hears of each run: the smaller scenario's verdict, or None."""
    best, runs = failed, 0
    while True:
        for candidate in _smaller(best.scenario):
            if runs == runs_max:
                return best
            runs += 1
            verdict = judge(candidate, task)
            same = verdict.promise == failed.promise
            progress(verdict if same else None)
            if same:
                best = verdict
                break
        else:
            return best


def _smaller(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios that are a step simpler, those that are much simpler first."""
    for faults in _fewer(scenario.faults):
        yield replace(scenario, faults=faults)
    every = range(scenario.peers)
    for gone in (every[2:], every[scenario.peers // 2 :], *([index] for index in reversed(every))):
        if 0 < len(gone) <= scenario.peers - 2:
            fewer = _without(scenario, gone)
            for seed in range(_SEEDS if fewer.settings.peers > 1 else 0):
                yield replace(fewer, settings=replace(fewer.settings, seed=scenario.settings.seed + seed))
    for arrivals in _fewer(scenario.arrivals):
        settings = replace(scenario.settings, peers=scenario.peers - len(arrivals))
        yield replace(scenario, arrivals=arrivals, settings=settings)
    if scenario.buggify:
        yield replace(scenario, buggify=False)
    plain = (Group(peers=scenario.peers, link=_PLAIN, step_s=_STEP_S),)
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


def _without(scenario: Scenario, gone: Collection[int]) -> Scenario:
    """The same without these peers; those that are left move up."""
    moved, groups, first = dict[int | str, int | str](), [], 0
    for group in scenario.groups:
        left = [index for index in range(first, first + group.peers) if index not in gone]
        moved.update((index, len(moved) + place) for place, index in enumerate(left))
        first += group.peers
        groups += [replace(group, peers=len(left))] if left else []
    faults = []
    for fault in scenario.faults:
        who = tuple(moved.get(target, target) for target in fault.who if target in moved or isinstance(target, str))
        if who or not fault.who or fault.kind in FOR_ALL:
            faults.append(replace(fault, who=who))
    late = dict(scenario.arrivals)
    founders = scenario.settings.peers - sum(index not in late for index in gone)
    arrivals = tuple((int(moved[index]), at_s) for index, at_s in scenario.arrivals if index in moved)
    settings = replace(scenario.settings, peers=founders)
    return replace(scenario, groups=tuple(groups), arrivals=arrivals, faults=tuple(faults), settings=settings)


def _shorter(scenario: Scenario) -> Iterator[Scenario]:
    """A shorter run, and a plainer one."""
    settings = scenario.settings
    if settings.steps > 1:
        yield replace(scenario, settings=replace(settings, steps=settings.steps // 2))
        yield replace(scenario, settings=replace(settings, steps=settings.steps * 3 // 4))
    for plainer in ({"period": "1"}, {"schedule": "ring"}, {"checkpoint_every_s": 0.0}):
        if any(getattr(settings, name) != value for name, value in plainer.items()):
            yield replace(scenario, settings=replace(settings, **plainer))


def _simpler(fault: Fault) -> Iterator[Fault]:
    """Fewer targets, sooner, shorter."""
    if len(fault.who) > 1:
        yield from (replace(fault, who=(target,)) for target in fault.who)
    if fault.for_s > 2 * _SHORT_S:
        yield replace(fault, for_s=round(fault.for_s / 2, 3))
    if fault.at_s is not None and fault.at_s > 2 * _SHORT_S:
        yield replace(fault, at_s=round(fault.at_s / 2, 3))
    for name in ("at_event", "at_step"):
        if (getattr(fault, name) or 0) > 1:
            yield replace(fault, **{name: getattr(fault, name) // 2})
