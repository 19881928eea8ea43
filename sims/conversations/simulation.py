"""The declaration of one conversation for simulations: its promises, places and settings beside the common ones."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from ...peers.conversations.loading import loaded
from ...peers.conversations.registry import CONVERSATIONS, declared_by
from ...peers.run_settings.settings import Settings
from ..checkers.common import Check
from ..scenarios.scenario import Group, Scenario

Harsher = tuple[float, Callable[[Scenario, random.Random], Scenario]]
"""The probability that a seed draws a harshness, and the function that adds it to a scenario, by faults,
latecomers or the like, with random choices from a generator."""
Draw = Callable[[random.Random, int, Sequence[Group]], Mapping[str, Any]]
"""Draws a conversation's own settings, from a generator, for a seed and these groups of peers. A setting that is added
later should be drawn from a generator of its own, ``random.Random(f"its name {seed}")``, so that the other draws of
all seeds stay as they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The declaration of a conversation for simulations. A module defines it as `SIMULATION`, and the conversation's
    `Registered.simulation` names that module. A user's own file that defines both gives ``simulation=__name__``.

    `checkers`: its promises, beside those of `checkers.common`; with a hostile member, only those of them are checked
    that are in `whatever_a_member_says`. `places`: names of the rare situations (`testpoints.sometimes`) in its code
    that a sweep of 300 seeds of this conversation must reach; `too_rare`: its other ones; `of_world`: names of what the
    simulated world counts (`Log.reached`), and such a sweep must reach, too; `sites`: names of the spots in its code
    that do something unlikely under `Scenario.buggify`. `out_of_reach`: common places that it never reaches.
    `messages`: the names of its messages at which drawn faults strike. `draw`: draws its settings. `steps_an_exchange`:
    number of local steps between two exchanges. `thaws`: whether the toy task of a seed with these settings unfreezes a
    parameter during the run. `of_large`: settings of a scenario with a large model, without which a message would take
    longer than a patience on the slowest drawn link. `harshness`: by name, its own ways to make a drawn scenario
    harsher (`Harsher`). `simpler`: settings to try when a failing scenario is minimised.
    """

    checkers: tuple[Check, ...] = ()
    whatever_a_member_says: tuple[Check, ...] = ()
    places: tuple[str, ...] = ()
    too_rare: tuple[str, ...] = ()
    of_world: tuple[str, ...] = ()
    sites: tuple[str, ...] = ()
    out_of_reach: tuple[str, ...] = ()
    messages: tuple[str, ...] = ()
    draw: Draw = lambda chance, seed, groups: {}
    steps_an_exchange: Callable[[Settings], int] = lambda settings: 1
    thaws: Callable[[int, Settings], bool] = lambda seed, settings: False
    of_large: Mapping[str, Any] = field(default_factory=dict)
    harshness: Mapping[str, Harsher] = field(default_factory=dict)
    simpler: tuple[Mapping[str, Any], ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The places, also of the world, and sites (as ``buggify: SITE``) that a sweep of this conversation must reach,
        beside the common ones."""
        return (*self.places, *self.of_world, *(f"buggify: {site}" for site in self.sites))


OF_ROUNDS = ("buggify: a donor is busy", "buggify: newcomers do not wait")
"""The `Simulation.out_of_reach` of a conversation whose members do not make rounds together and give each other
snapshots: it never reaches these common places."""


def simulation(protocol: str) -> Simulation:
    """The declaration for simulations of the conversation that `--protocol` names. For a conversation without one: a
    declaration with the defaults, by which it is simulated with the defaults of its settings, and only the common
    promises are checked. Raises ValueError for an unknown conversation."""
    module = declared_by(loaded(protocol)).simulation
    found: Simulation = import_module(module).SIMULATION if module else Simulation()
    return found


def simulation_of(settings: Settings) -> Simulation:
    """The declaration for simulations of the conversation that the settings choose."""
    return simulation(settings.protocol.text)


def registered() -> tuple[str, ...]:
    """The names of the conversations among which a sweep without --protocol divides its seeds."""
    return tuple(CONVERSATIONS)
