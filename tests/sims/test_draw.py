"""What a seed draws: every harshness is there, does what it says, and none of it reshuffles the rest."""

import functools
from dataclasses import replace

import pytest

from samovar.peers.conversations.parameter_server_settings import ParameterServerSettings
from samovar.protocols.parameter_server.placement import ranges_of
from samovar.sims.conversations.simulation import registered, simulation
from samovar.sims.frames import names
from samovar.sims.scenarios.scenario import Kind, Scenario
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.harsh import HARSHNESS, harsher


@functools.cache
def plain(seed: int) -> Scenario:
    drawn = draw(seed)
    groups = tuple(replace(group, dialable=True) for group in drawn.groups)
    return replace(drawn, priorities=None, faults=(), groups=groups, evaluates=False)


OWN = [(protocol, name) for protocol in registered() for name in simulation(protocol).harshness]
"""What makes the scenarios of one conversation harsher."""
EVERY = {*HARSHNESS, *(name for _, name in OWN)}


def with_only(name: str, seed: int) -> Scenario:
    return harsher(plain(seed), but=EVERY - {name})


@pytest.mark.parametrize("name", HARSHNESS)
def test_each_harshness_is_drawn_as_often_as_it_says(name: str) -> None:
    odds, _ = HARSHNESS[name]
    drawn = sum(with_only(name, seed) != plain(seed) for seed in range(200))
    assert 0.6 * odds < drawn / 200 < 1.4 * odds


@pytest.mark.parametrize(("protocol", "name"), OWN)
def test_what_makes_one_conversation_harsher_is_drawn_and_keeps_the_other_seeds_as_they_were(
    protocol: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may leave out scenarios that it does not suit, so it is drawn at most as often as it says."""
    monkeypatch.setattr("samovar.sims.sweeps.draw.harsher", lambda scenario: scenario)
    odds, _ = simulation(protocol).harshness[name]
    gentle = [draw(seed, protocol) for seed in range(200)]
    assert [harsher(one, but=EVERY) for one in gentle] == gentle
    changed = sum(harsher(one, but=EVERY - {name}) != one for one in gentle)
    assert 0 < changed < 1.4 * odds * 200


def test_one_harshness_less_leaves_all_others_as_they_were() -> None:
    for seed in range(50):
        whole, less = (harsher(replace(draw(seed), faults=()), but=but) for but in ((), {"broken pairs"}))
        assert [fault for fault in whole.faults if fault.kind is not Kind.SEPARATE] == list(less.faults)
        assert replace(whole, faults=()) == replace(less, faults=())


def test_quick_restarts_are_over_within_a_patience_and_some_at_once() -> None:
    waits = [
        fault.for_s / scenario.settings.patience_s
        for scenario in (with_only("quick faults", seed) for seed in range(100))
        for fault in scenario.faults
        if fault.kind is Kind.RESTART
    ]
    assert {round(part, 6) for part in waits} == {0.02, 0.1, 0.5, 1.0}


def test_faults_amid_messages_are_aimed_at_messages_that_there_are() -> None:
    amid = [fault.at_message for seed in range(200) for fault in with_only("amid messages", seed).faults]
    found = {moment.message for moment in amid if moment is not None}
    assert found >= {"Propose", "Promise", "Adopt", "Adopted", "Install", "Have", "Commit", "Part"}
    assert found <= {*names()}
    assert {moment.sent for moment in amid if moment is not None} == {True, False}


def test_drawn_joiners_join_at_once_and_at_least_two_peers_are_there_before() -> None:
    most = 0
    for seed in range(200):
        scenario = with_only("joiners at once", seed)
        if scenario == plain(seed):
            continue
        times_s = [at_s for _, at_s in scenario.arrivals]
        assert not times_s or max(times_s) - min(times_s) <= 0.01
        assert scenario.settings.founders == scenario.peers - len(times_s) >= 2
        most = max(most, len(times_s))
    assert most >= 4


def test_a_slow_link_sends_a_range_of_a_large_model_within_the_patience() -> None:
    """A range is sent whole, and heartbeats wait behind it."""
    large = [one for one in (draw(seed, "parameter_server") for seed in (54, 412, 2903)) if one.toy_size > 2_000]
    slow = [one for one in large if min(group.link.bandwidth_Bps for group in one.groups) <= 1.25e5]
    assert slow
    for scenario in slow:
        settings = scenario.settings
        ranges = ranges_of(scenario.toy_size, scenario.toy_size, ParameterServerSettings.of(settings).ranges)
        nbytes = 4 * max(stop - start for start, stop in ranges)
        assert nbytes < 1.25e5 * settings.patience_s / 2, settings.seed
