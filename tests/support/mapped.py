"""Runs of map and reduce in simulations, with a virtual duration of the map of a partition."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from samovar.peers.records.records import Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.protocols.parameter_server.mapper import Mapper
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.checkers.common import no_error_is_a_surprise, no_honest_peer_is_taken_for_another
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

STEP_S = 0.05


def plain(**settings: Any) -> Scenario:
    scenario = Scenario.plain(Settings(**settings))
    return replace(scenario, groups=tuple(replace(group, step_s=STEP_S) for group in scenario.groups))


def run(task: Task, scenario: Scenario) -> tuple[World, list[Record]]:
    """The world after the scenario, whose promises are all kept, and its records."""
    records: list[Record] = []
    world = World(task, scenario, records.append)
    run_virtual(world.run(within_s=300), seed=scenario.settings.seed)
    for promise in (*promises.PARAMETER_SERVER, no_honest_peer_is_taken_for_another, no_error_is_a_surprise):
        assert list(promise(scenario, world.log.entries)) == []
    return world, records


def models(world: World) -> list[torch.Tensor]:
    """The models of the workers that have ended well."""
    ended = [life for life in world.lives if life.result is not None and life.result.finished]
    talks = [life.peer.conversation for life in ended]
    return [talk.position().vector for talk in talks if isinstance(talk, Mapper)]
