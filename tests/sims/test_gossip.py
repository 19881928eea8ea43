"""Gossip in simulations: models come together, faults strike only the neighbours, and its promises can be broken."""

import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from live import verb
from test_simulated_runs import TASKS, simulate
from tiers import soaked

from samovar.aggregation.mixing.topology import Vertex
from samovar.peers.records.records import EventRecord, ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.peers.task.task import load_task
from samovar.protocols.gossip.graph import Placed
from samovar.protocols.gossip.messages import Published
from samovar.protocols.gossip.mixing import CaughtUp, Mixed
from samovar.protocols.gossip.neighbourhood import Neighbourhood
from samovar.protocols.gossip.periods import Told
from samovar.protocols.gossip.shares import CameBack
from samovar.protocols.members.states import Moved, State
from samovar.protocols.members.view import Decided
from samovar.sims.checkers.gossip import (
    a_mix_is_of_what_was_published,
    a_share_is_taken_once_or_comes_back,
    neighbours_give_each_other_the_same_weight,
    no_model_weighs_more_than_its_links_allow,
    rounds_are_mixed_one_by_one,
)
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.event_log import Entry
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import Hung, World

UNION = TASKS / "union.py"


def spread(**settings: object) -> float:
    """How far the models of eight peers are from their mean at the end."""
    _, _, world = simulate(UNION, peers=8, steps=48, protocol="gossip", period="4", **settings)
    assert {life.peer.conversation.version for life in world.lives} == {12}
    models = torch.stack([life.trainer.vector for life in world.lives])
    return float((models - models.mean(0)).norm())


def test_models_come_together_the_closer_the_better_the_graph_mixes() -> None:
    ring, exponential, complete = (spread(topology=name) for name in ("ring", "exponential", "complete"))
    assert complete < 1e-5, "every mix is the mean of all"
    assert complete < exponential < ring


@pytest.mark.parametrize("algorithm", ["epidemic:3", "moshpit:3"])
def test_other_algorithms_bring_models_together_too(algorithm: str) -> None:
    assert spread(algorithm=algorithm) < spread(topology="ring")


def test_a_share_that_comes_back_counts_for_its_sender_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here as many weights come back as there are rounds."""

    def completed(self: Neighbourhood, mixed: torch.Tensor) -> torch.Tensor:
        share = torch.zeros_like(mixed)
        share[-1] = 1.0
        return mixed + share

    monkeypatch.setattr(Neighbourhood, "completed", completed)
    _, _, world = simulate(UNION, peers=2, steps=8, protocol="gossip", period="4", algorithm="push_sum")
    weights = [float(life.peer.conversation.state.held.tensors["sum"][-1]) for life in world.lives]
    assert sum(weights) == pytest.approx(2 + 2 * 2, abs=0.6)


def periods_of(**settings: Any) -> list[list[int]]:
    """The local steps before each exchange of each peer, in a run of 200."""
    settings |= {"peers": 6, "steps": 200, "protocol": "gossip", "topology": "ring", "step_time": "20ms"}
    _, records, _ = simulate(UNION, **settings)
    exchanges = [one for one in records if isinstance(one, ExchangeRecord)]
    assert max(one.step for one in exchanges) == 200
    peers = {one.peer for one in exchanges}
    return [[int(one.details["period"]) for one in exchanges if one.peer == peer] for peer in peers]


@pytest.mark.parametrize(("period", "alike"), [("adaptive", 2), ("auto", 4)])
def test_each_peer_decides_its_period_and_neighbours_decide_alike(period: str, alike: int) -> None:
    """`auto` grows by a factor of 4 at a time."""
    periods = periods_of(period=period, period_block_s=0.5, link="100mbit,100ms")
    assert all(len(set(own)) > 1 for own in periods), "each peer has changed its period"
    for round in range(5, min(map(len, periods)) - 1):
        chosen = [own[round] for own in periods]
        assert max(chosen) <= alike * min(chosen)


def test_without_guesses_peers_mix_the_more_rarely_the_longer_it_takes() -> None:
    near, far = (periods_of(period="auto", link=f"100mbit,{latency}") for latency in ("1ms", "500ms"))
    assert max(map(max, near)) < min(map(max, far))


@pytest.mark.parametrize("motion", [(1.0,), (math.nan,) * 7])
def test_impossible_numbers_are_told_from_possible_numbers(motion: tuple[float, ...]) -> None:
    assert Told(1.0, 0.1).makes_sense
    assert Told(1.0, 0.1, (0.0,) * 7).makes_sense
    assert not Told(1.0, 0.1, motion).makes_sense
    assert not Told(math.inf, 0.1).makes_sense


@pytest.mark.parametrize(("first", "count"), [(0, 4), soaked(4, 6), soaked(100, 10)])
def test_gossip_keeps_its_promises_under_drawn_faults(first: int, count: int) -> None:
    """`samovar simulate --sweep 300 --protocol gossip` judges more of them."""
    wrong = {seed: judge(draw(seed, "gossip")).broken for seed in range(first, first + count)}
    assert {seed: how for seed, how in wrong.items() if how} == {}


def test_both_sides_of_a_partition_train_on_and_come_together_again() -> None:
    settings = Settings(
        peers=6, steps=1000, period="4", protocol="gossip", topology="complete", device="cpu", patience_s=0.3
    )
    cut = Fault(kind=Kind.CUT_OFF, who=(0, 1, 2), at_s=0.3, for_s=1.5)
    world = World(load_task(UNION), replace(Scenario.plain(settings), faults=(cut,)))
    run_virtual(world.run(within_s=300), seed=0)
    mixed = [(entry.time_s, entry.life) for entry in world.log.entries if isinstance(entry.event, Mixed)]
    amid = {life for time_s, life in mixed if 0.9 < time_s < 1.7}
    assert len(amid) == 6, "no side waited for the other"
    ended = [life for life in world.lives if life.result is not None and life.result.finished]
    assert len(ended) == 6
    models = torch.stack([life.trainer.vector for life in ended])
    assert float((models - models.mean(0)).norm()) < 1e-3


def struck(peers: int, *faults: Fault, **settings: Any) -> list[Record]:
    """The records of a run on a complete graph whose peers take local steps of 50 ms."""
    common = {"steps": 400, "period": "4", "protocol": "gossip", "topology": "complete", "device": "cpu"}
    plain = Scenario.plain(Settings(peers=peers, patience_s=1.0, link="100mbit,5ms", **(common | settings)))
    records: list[Record] = []
    scenario = replace(plain, groups=(replace(plain.groups[0], step_s=0.05),), faults=faults)
    run_virtual(World(load_task(UNION), scenario, records.append).run(within_s=300), seed=0)
    return records


def told_of_others(records: list[Record], by: str) -> list[tuple[str, str]]:
    events = ("lost", "back", "waiting", "alone", "silent", "error")
    return [
        (one.event, one.about)
        for one in records
        if isinstance(one, EventRecord) and one.peer == by and one.event in events
    ]


@pytest.mark.parametrize("algorithm", ["d_psgd", "push_sum"])
def test_the_last_of_two_trains_on_at_full_speed_and_tells_once_that_the_other_is_lost(algorithm: str) -> None:
    """It can decide no view by itself, and goes on asking for the other, which comes back 60 rounds behind."""
    pause = Fault(kind=Kind.PAUSE, who=(1,), at_s=1.0, for_s=12.0)
    records = struck(2, pause, algorithm=algorithm)
    exchanges = [one for one in records if isinstance(one, ExchangeRecord)]
    waits = [one.wait_s for one in exchanges if one.peer == "0"]
    assert len(waits) == 100
    assert [wait_s for wait_s in waits if wait_s > 0.5] == [max(waits)], "until it has lost the other, and no more"
    assert told_of_others(records, "0") == [("alone", ""), ("lost", "1"), ("back", "1")]
    assert ("alone", "") not in told_of_others(records, "1")[2:]
    last = {one.peer: one for one in exchanges}
    assert {one.step for one in last.values()} == {400}
    assert sum(one.peer == "1" for one in exchanges) < 60, "it went on from the other's model"


def test_a_peer_that_is_away_twice_is_told_to_be_lost_and_back_twice() -> None:
    """Where too few are left to remove it, it is in the view all the time."""
    pauses = (Fault(kind=Kind.PAUSE, who=(1,), at_s=at_s, for_s=4.0) for at_s in (1.0, 9.0))
    records = struck(2, *pauses)
    for peer, other in (("0", "1"), ("1", "0")):
        told = told_of_others(records, peer)
        assert [event for event, about in told if about == other] == ["lost", "back"] * 2, peer


def test_gossip_goes_on_when_most_of_its_peers_have_ended() -> None:
    """No quorum of the view can come together any more."""
    records = struck(3, Fault(kind=Kind.CRASH, who=(1, 2), at_s=1.0))
    steps = [one.step for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]
    assert steps[-1] == 400
    assert told_of_others(records, "0") == [("alone", ""), ("lost", "1"), ("lost", "2")]


def test_a_peer_is_told_to_be_alone_only_where_nobody_else_is_there() -> None:
    """Two of six are cut off, and go on from the models of the others, in an exchange of none but themselves."""
    records = struck(6, Fault(kind=Kind.CUT_OFF, who=(0, 1, 2, 3), at_s=1.0, for_s=6.0))
    assert any(one.caught_up and one.members == 1 for one in records if isinstance(one, ExchangeRecord))
    assert [about for peer in "012345" for event, about in told_of_others(records, peer) if event == "alone"] == []


def test_a_round_that_is_left_out_is_found() -> None:
    vector = torch.zeros(2)
    log = [
        Entry(0.0, "0.0", Mixed(1, vector, 1.0, {}, {}, vector)),
        Entry(1.0, "0.0", Mixed(3, vector, 1.0, {}, {}, vector)),
        Entry(2.0, "0.0", CaughtUp(3)),
    ]
    found = list(rounds_are_mixed_one_by_one(draw(0, "gossip"), log))
    assert found == ["0.0 mixed round 3 after 1", "0.0 went on from round 3 after 3"]


def test_a_mix_of_unpublished_vectors_is_found() -> None:
    ones, scenario = torch.ones(2), draw(0, "gossip")
    published = Entry(0.0, "1.0", Published(1, 4, 3 * ones))

    def told(event: Mixed) -> list[str]:
        return list(a_mix_is_of_what_was_published(scenario, [published, Entry(1.0, "0.0", event)]))

    half = {"peer-1": 0.5}
    assert told(Mixed(1, ones, 0.5, half, {"peer-1": 1}, 2 * ones)) == []
    assert told(Mixed(1, ones, 0.5, half, {"peer-1": 1}, 2.1 * ones)) == [
        "0.0 mixed in round 1 what nobody had published"
    ]
    assert told(Mixed(1, ones, 0.5, half, {"peer-1": 2}, 2 * ones)) == [
        "0.0 mixed in round 1 what nobody had published"
    ]
    assert len(told(Mixed(1, ones, -0.6, {"peer-1": 1.5}, {"peer-1": 1}, 4 * ones))) == 1


def test_neighbours_that_weigh_each_other_differently_are_found_where_both_know_the_same_peers() -> None:
    both = (("peer-0", Vertex(0)), ("peer-1", Vertex(1)))
    log = [
        Entry(0.0, "0.0", Placed(-1, both, {"peer-1": 0.5})),
        Entry(1.0, "1.0", Placed(-1, (*both, ("peer-2", Vertex(2))), {"peer-0": 0.25})),
        Entry(2.0, "1.0", Placed(-1, both, {"peer-0": 0.5})),
    ]
    assert list(neighbours_give_each_other_the_same_weight(draw(0, "gossip"), log)) == []
    log.append(Entry(3.0, "1.0", Placed(-1, both, {"peer-0": 0.25})))
    found = list(neighbours_give_each_other_the_same_weight(draw(0, "gossip"), log))
    assert found == ["1.0 gives the model of peer-0 the weight 0.25, which gives its model 0.5"]


@pytest.mark.parametrize(("algorithm", "membership", "found"), [("d_psgd", "swim:3", 1), ("d_psgd", "views", 0)])
def test_a_model_that_weighs_more_than_its_links_allow_is_found(algorithm: str, membership: str, found: int) -> None:
    ones, settings = torch.ones(2), Settings(protocol="gossip", peers=8, algorithm=algorithm, membership=membership)

    def told(weight: float) -> list[str]:
        log = [
            Entry(0.0, "1.0", Published(1, 4, ones, Told(links=3))),
            Entry(1.0, "0.0", Mixed(1, ones, 1 - weight, {"peer-1": weight}, {"peer-1": 1}, ones)),
        ]
        return list(no_model_weighs_more_than_its_links_allow(Scenario.plain(settings), log))

    assert told(0.25) == []
    assert len(told(0.3)) == found


def test_a_share_that_is_taken_and_comes_back_too_is_found_unless_another_life_gave_it() -> None:
    ones = torch.ones(2)

    def told(back_to: str, *decided: str) -> list[str]:
        log = [
            Entry(0.0, "1.0", Published(1, 4, ones)),
            Entry(1.0, "0.0", Mixed(1, ones, 1.0, {"peer-1": 1.0}, {"peer-1": 1}, 2 * ones)),
            Entry(2.0, "1.1", Published(1, 4, ones)),
            Entry(3.0, back_to, CameBack(1, "peer-0")),
            *([Entry(3.5, "1.0", Decided(2, decided))] if decided else []),
            Entry(4.0, "0.0", Moved(State.MEMBER, State.FINISHED)),
        ]
        return list(a_share_is_taken_once_or_comes_back(draw(0, "gossip"), log))

    assert told("1.0") == ["0.0 took the share of 1.0 in round 1, which came back too"]
    assert told("1.1") == []
    assert told("1.0", "peer-0", "peer-1") == told("1.0")
    assert told("1.0", "peer-1") == [], "the others had gone on without it"


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--algorithm", "moshpit:2", "--topology", "ring"), "--topology"),
        (("--topology", "regular:1"), "--topology"),
        (("--algorithm", "epidemic:0"), "--algorithm"),
        (("--outer", "nesterov"), "--outer"),
        (("--codec", "int8"), "--codec"),
        (("--algorithm", "choco", "--codec", "power_sgd:2", "--topology", "ring"), "--codec"),
        (("--algorithm", "choco", "--codec", "int8"), "--codec"),
        (("--algorithm", "choco:1.5"), "--algorithm"),
    ],
)
def test_settings_that_gossip_cannot_take_are_refused_in_one_line(flags: tuple[str, ...], named: str) -> None:
    ended = verb("simulate", UNION, "--protocol", "gossip", *flags)
    assert ended.exit_code == 2
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


def exchanges_beside_a_slow_peer(algorithm: str, slow_s: float) -> int:
    """The fewest exchanges that any of five peers makes within six seconds beside a sixth, whose steps take so long."""
    link = parse_link("1gbit,1ms")
    groups = (Group(peers=5, link=link, step_s=0.05), Group(peers=1, link=link, step_s=slow_s))
    settings = Settings(peers=6, steps=10**6, period="4", protocol="gossip", algorithm=algorithm, device="cpu")
    world = World(load_task(UNION), Scenario(settings=settings, groups=groups))
    with pytest.raises(Hung):  # its time is over
        run_virtual(world.run(within_s=6.0), seed=0)
    made = Counter(entry.life for entry in world.log.entries if isinstance(entry.event, Mixed))
    return min(made[f"{peer}.0"] for peer in range(5))


def test_a_slow_peer_delays_no_other_peer_where_pairs_average() -> None:
    assert exchanges_beside_a_slow_peer("ad_psgd", 0.5) >= 0.9 * exchanges_beside_a_slow_peer("ad_psgd", 0.05)
    assert exchanges_beside_a_slow_peer("d_psgd", 0.5) < 0.5 * exchanges_beside_a_slow_peer("d_psgd", 0.05)


def test_a_peer_whose_step_hangs_is_reported_by_the_peers_that_wait_for_it_and_no_others() -> None:
    settings = Settings(peers=6, steps=100, period="4", protocol="gossip", topology="ring", device="cpu")
    scenario = replace(Scenario.plain(settings), faults=(Fault(kind=Kind.HANG, who=(3,), at_s=0.1, for_s=40.0),))
    records = list[Record]()
    run_virtual(World(load_task(UNION), scenario, records.append).run(within_s=300), seed=0)
    reports = [(one.peer, one.subject) for one in records if isinstance(one, EventRecord) and one.event == "stalled"]
    assert set(reports) == {("2", "3"), ("3", "3"), ("4", "3")}


@pytest.mark.parametrize(("membership", "seed"), [("views", 0), ("views", 1), ("swim", 0)])
def test_a_newcomer_is_let_in_as_long_as_one_peer_trains(membership: str, seed: int) -> None:
    """Three of four have finished, the coordinator among them, when the newcomer asks that which `seed` chooses."""
    link = parse_link("1gbit,1ms")
    groups = tuple(Group(peers=peers, link=link, step_s=step_s) for peers, step_s in ((3, 0.01), (1, 0.2), (1, 0.01)))
    settings = Settings(
        peers=4,
        steps=20,
        period="2",
        protocol="gossip",
        algorithm="ad_psgd",
        membership=membership,
        device="cpu",
        seed=seed,
    )
    world = World(load_task(UNION), Scenario(settings=settings, groups=groups, arrivals=((4, 1.0),)))
    run_virtual(world.run(within_s=60), seed=0)
    published = [entry for entry in world.log.entries if isinstance(entry.event, Published)]
    assert {"0.0", "1.0", "2.0"} == {one.life for one in published if one.event.last and one.time_s < 1.0}
    assert [life.result is not None and life.result.finished for life in world.lives] == [True] * 5


def test_nobody_waits_for_a_peer_that_resumes_at_its_end() -> None:
    def world_of(period: str) -> World:
        settings = Settings(peers=2, steps=12, period=period, protocol="gossip", device="cpu", checkpoint_every_s=0.0)
        return World(load_task(UNION), Scenario.plain(settings))

    rare, often = world_of("12"), world_of("4")
    run_virtual(rare.run(within_s=60), seed=0)
    often._disks[0] = rare._disks[0]
    run_virtual(often.run(within_s=60), seed=0)
    assert [life.peer.conversation.version for life in often.lives] == [1, 3]
