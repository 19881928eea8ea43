"""Drawing a whole scenario from one seed: the number of peers, their links, the settings, and the faults."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from ...peers.run_settings.settings import Settings
from ...protocols.link_spec import LinkSpec
from ...protocols.members.attributes import SERVER
from ..conversations.simulation import registered, simulation
from ..scenarios.noise import Noise
from ..scenarios.scenario import TOY_SIZE, Fault, Group, Kind, Scenario
from .harsh import harsher

_RATES_BPS = (1.25e5, 1.25e6, 1.25e7, 1.25e8)
_LATENCIES_S = (0.0005, 0.005, 0.04, 0.15)
_FAULTS_UNTIL_S = (5.0, 15.0, 30.0)
_MEMORIES_BYTES = (1 << 16, 1 << 20, 1 << 24)
_WEIGHTS = {
    Kind.CRASH: 5,
    Kind.PAUSE: 4,
    Kind.RESTART: 3,
    Kind.REPLACE: 2,
    Kind.SLOW: 2,
    Kind.CUT_OFF: 4,
    Kind.DEAFEN: 3,
    Kind.RING: 1,
    Kind.CLOG: 2,
    Kind.NOISE: 3,
    Kind.LINK: 1,
    Kind.FULL_DISK: 1,
    Kind.CLOCK: 1,
}


def shared_out(seed: int) -> str:
    """The conversation of the scenario of that seed, in a sweep over all registered conversations."""
    names = registered()
    return names[seed % len(names)]


def draw(seed: int, protocol: str | None = None) -> Scenario:
    """The scenario of that seed. `protocol`: its conversation; None: `shared_out` chooses it."""
    chance = random.Random(f"scenario {seed}")
    founders = chance.randint(2, 8)
    late = chance.choice((0, 0, 0, 1, 2))
    groups = _groups(chance, founders + late)
    trunks = _trunks(chance, groups)
    farthest_s = 2 * max(_delay_s(group.link) for group in groups) + sum(_delay_s(link) for *_, link in trunks)
    patience_s = max(chance.choice((1.0, 2.0, 5.0)), 8 * farthest_s)
    protocol = shared_out(seed) if protocol is None else protocol
    conversation = simulation(protocol)
    own = conversation.draw(chance, seed, groups)
    common: dict[str, Any] = {
        "peers": founders,
        "protocol": protocol,
        "steps": chance.randint(8, 40),
        "seed": seed,
        "device": "cpu",
        "patience_s": patience_s,
        "checkpoint_every_s": chance.choice((0.0, 0.5, 5.0)),
    }
    settings = Settings(**{**common, **own})
    if (
        servers := settings.own.server_count()
    ):  # they come first, so that latecomers and their faults are those that train
        groups = (Group(peers=servers, link=groups[0].link, role=SERVER), *groups)
        founders += servers
    peers = founders + late
    # Half of all scenarios are gentle: all faults are over before any patience ends, and every peer must survive.
    for_s = chance.choice((0.7, 3.0)) * patience_s
    faults = tuple(_fault(chance, peers, for_s) for _ in range(chance.choice((0, 1, 1, 2, 2, 3, 4))))
    faults = tuple(_slowed_down(fault, groups, random.Random(f"slow link {seed}")) for fault in faults)
    # So large a model exercises chunks and credit. All its vectors are kept for the checks, so a few rounds suffice.
    toy_size = chance.choices((TOY_SIZE, 2_000, 100_000), (14, 5, 1))[0]
    if toy_size > 2_000:
        few = 3 * conversation.steps_an_exchange(settings)
        settings = settings.changed(steps=min(settings.steps_max or few, few), **conversation.of_large)
    scenario = Scenario(
        settings=settings,
        toy_size=toy_size,
        thaws=conversation.thaws(seed, settings),
        groups=groups,
        trunks=trunks,
        arrivals=tuple((founders + index, chance.uniform(0.1, 8.0)) for index in range(late)),
        faults=faults,
        faults_until_s=chance.choice(_FAULTS_UNTIL_S),
        buggify=chance.random() < 0.5,
    )
    return harsher(scenario)


def _groups(chance: random.Random, peers: int) -> tuple[Group, ...]:
    slow = chance.randint(1, peers - 1) if chance.random() < 0.5 else 0
    return tuple(
        Group(
            peers=count,
            site=site,
            link=_link(chance),
            step_s=chance.choice((0.001, 0.02, 0.2)),
            memory_bytes=chance.choice(_MEMORIES_BYTES) if chance.random() < 0.05 else 0,
        )
        for site, count in (("near", peers - slow), ("far", slow))
        if count
    )


def _trunks(chance: random.Random, groups: tuple[Group, ...]) -> tuple[tuple[str, str, LinkSpec], ...]:
    return (
        (("near", "far", replace(_link(chance), down_Bps=None)),) if len(groups) > 1 and chance.random() < 0.3 else ()
    )


def _delay_s(link: LinkSpec) -> float:
    return link.latency_s + link.jitter_s


def _link(chance: random.Random) -> LinkSpec:
    latency_s = chance.choice(_LATENCIES_S)
    jitter_s = chance.choice((0.0, latency_s / 2, 3 * latency_s))
    return LinkSpec(
        bandwidth_Bps=chance.choice(_RATES_BPS),
        latency_s=latency_s,
        jitter_s=jitter_s,
        down_Bps=chance.choice(_RATES_BPS) if chance.random() < 0.2 else None,
    )


def _fault(chance: random.Random, peers: int, for_s: float) -> Fault:
    kind = chance.choices(list(_WEIGHTS), list(_WEIGHTS.values()))[0]
    first: int | str = chance.choice((chance.randrange(peers), "coordinator", "founder", "newest"))
    more = chance.randint(0, (peers - 1) // 2 - 1) if peers > 2 and chance.random() < 0.3 else 0
    when = chance.choice(("time", "event", "step" if isinstance(first, int) else "event"))
    return Fault(
        kind=kind,
        who=(first, *(chance.randrange(peers) for _ in range(more))),
        at_s=chance.uniform(0.1, 10.0) if when == "time" else None,
        at_event=chance.randint(1, 500) if when == "event" else None,
        at_step=chance.randint(1, 30) if when == "step" else None,
        for_s=chance.uniform(0.1, 1.0) * for_s,
        factor=chance.choice((3.0, 30.0)) if kind is Kind.SLOW else 3600.0,
        noise=Noise(loss=_some(chance), duplicate=_some(chance), reorder=_some(chance), corrupt=_some(chance) / 10),
        link=_link(chance),
    )


def _slowed_down(fault: Fault, groups: tuple[Group, ...], chance: random.Random) -> Fault:
    """Make half of the link changes pure slow-downs, by a factor so large that the other peers may not wait."""
    if fault.kind is not Kind.LINK or chance.random() < 0.5:
        return fault
    link, factor = groups[-1].link, chance.choice((10, 30, 100))
    down_Bps = None if link.down_Bps is None else link.down_Bps / factor
    return replace(fault, link=replace(link, bandwidth_Bps=link.bandwidth_Bps / factor, down_Bps=down_Bps))


def _some(chance: random.Random) -> float:
    return chance.choice((0.0, 0.01, 0.1, 0.3))
