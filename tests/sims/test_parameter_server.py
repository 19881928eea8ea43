"""The parameter server in simulations: it trains, servers and workers come and go, and its promises can be broken."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from live import verb
from test_simulated_runs import TASKS, simulate
from tiers import soaked
from two_servers import TWO_SERVERS

from samovar.aggregation.server.add import Add
from samovar.aggregation.vector import Part
from samovar.peers.checkpoints.checkpoint import Snapshot
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.parameter_server.events import Entered, Took
from samovar.protocols.parameter_server.exchanges import SERVERLESS_PATIENCES
from samovar.protocols.parameter_server.keys import Keys
from samovar.protocols.parameter_server.lost_range import LostRange
from samovar.protocols.parameter_server.placement import Placement
from samovar.protocols.parameter_server.serving import Serving, restored, saved
from samovar.protocols.parameter_server.store import Copy, Store
from samovar.protocols.parameter_server.worker import Worker
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Moment, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge, run_and_judge
from samovar.sims.world.event_log import Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.simulated_peer import Life
from samovar.sims.world.world import World

UNION = TASKS / "union.py"
OWN = {**TWO_SERVERS, "steps": 12}


def run(scenario: Scenario) -> World:
    """The world after the scenario, whose promises are all kept."""
    world = World(toy_task(), scenario)
    run_virtual(world.run(within_s=300), seed=scenario.settings.seed)
    for promise in promises.PARAMETER_SERVER:
        assert list(promise(scenario, world.log.entries)) == []
    return world


def test_one_server_and_several_make_the_same_steps() -> None:
    def model(servers: int, copies: int) -> torch.Tensor:
        _, _, world = simulate(UNION, **{**OWN, "servers": servers, "copies": copies})
        pulled = [
            life.peer.conversation.position().vector
            for life in world.lives
            if isinstance(life.peer.conversation, Worker)
        ]
        assert all(torch.equal(one, pulled[0]) for one in pulled)
        return pulled[0]

    assert torch.allclose(model(1, 1), model(3, 2), atol=1e-6)


@pytest.mark.parametrize(
    ("consistency", "update"),
    [
        ("bsp", "add"),
        ("ssp:2", "adagrad:0.05"),
        ("bounded:2", "add"),
        ("async", "adagrad:0.05"),
        *(soaked(*one) for one in (("bsp", "adagrad:0.05"), ("ssp:2", "add"))),
        *(soaked(*one) for one in (("bounded:2", "adagrad:0.05"), ("async", "add"))),
    ],
)
def test_every_consistency_brings_all_workers_to_the_end(consistency: str, update: str) -> None:
    settings = Settings(**{**OWN, "consistency": consistency, "server_update": update})
    world = run(Scenario.plain(settings))
    workers = [life.peer.conversation for life in world.lives if isinstance(life.peer.conversation, Worker)]
    assert [worker.version for worker in workers if isinstance(worker, Worker)] == [12, 12, 12]


def test_a_stale_worker_is_waited_for_within_the_bound_alone() -> None:
    def clocks(consistency: str) -> list[int]:
        settings = Settings(**{**OWN, "consistency": consistency, "steps": 10**6})
        groups = (*Scenario.plain(settings).groups, Group(peers=1, link=Scenario.plain(settings).groups[0].link))
        slow = replace(groups[0], peers=1, step_s=5.0)
        scenario = Scenario(settings=settings, groups=(slow, replace(groups[0], peers=2), groups[1]))
        world = World(toy_task(), scenario)
        with pytest.raises(Exception, match="still run"):
            run_virtual(world.run(within_s=2.5), seed=0)
        return [life.peer.conversation.version for life in world.lives if isinstance(life.peer.conversation, Worker)]

    assert clocks("bsp")[1:] == [1, 1]
    assert clocks("ssp:3")[1:] == [4, 4]
    assert min(clocks("async")[1:]) > 20


def events(settings: Settings, faults: Sequence[Fault] = ()) -> World:
    return run(replace(Scenario.plain(settings), faults=tuple(faults)))


@pytest.mark.parametrize("first", [160, *(soaked(first) for first in range(40, 400, 20) if first != 160)])
@pytest.mark.parametrize("who", [3, soaked(4), 0])
def test_a_crash_at_any_event_loses_no_acknowledged_push(who: int, first: int) -> None:
    """Three servers and three workers, two copies: events of the founding, of pushes, and of the takeover after."""
    settings = Settings(**{**OWN, "servers": 3, "steps": 3, "patience_s": 0.5, "consistency": "ssp:1"})
    for at in range(first, first + 20, 7 if first in (60, 160) else 1):
        world = events(settings, [Fault(kind=Kind.CRASH, who=(who,), at_event=at)])
        ended = [life for life in world.lives if life.result is not None and life.result.finished]
        assert len(ended) >= 5, at


def test_a_server_that_joins_takes_ranges_and_whole_numbers_stay_exact() -> None:
    """Every push adds a whole number, so that a lost or repeated one shows in the sum."""
    settings = Settings(**{**OWN, "steps": 40, "consistency": "async"})
    plain = Scenario.plain(settings)
    scenario = replace(
        plain, groups=(*plain.groups, Group(peers=1, link=plain.groups[0].link, role="server")), arrivals=((5, 0.4),)
    )
    world = run(scenario)
    came = next(life.peer.conversation for life in world.lives if life.index == 5)
    assert isinstance(came, Serving)
    held = [entry for entry in world.log.entries if entry.life == "5.0" and isinstance(entry.event, Took)]
    assert held, "it has taken ranges over"
    pushes: dict[int, set[tuple[str, int]]] = {}
    for entry in world.log.entries:
        if isinstance(entry.event, Entered):
            pushes.setdefault(entry.event.range, set()).update(entry.event.pushes)
    everything = {(f"peer-{worker}", seq) for worker in range(3) for seq in range(1, 41)}
    assert all(found == everything for found in pushes.values())


def test_a_server_writes_records_and_a_worker_names_the_peer_that_it_waited_for() -> None:
    _, records, _ = simulate(UNION, **{**OWN, "evaluate_every": 4})
    exchanges = [one for one in records if isinstance(one, ExchangeRecord)]
    servers = [one for one in exchanges if one.peer in ("3", "4")]
    assert servers
    assert {*servers[0].details} == {"updates", "staleness", "ranges"}
    assert all(one.members == 3 for one in exchanges)


def test_a_server_that_holds_copies_alone_writes_records_as_often_as_the_heads() -> None:
    wishes = {**OWN, "steps": 40, "evaluate_every": 4, "ranges": 1, "link": "1gbit,1ms"}
    _, records, _ = simulate(UNION, **wishes)
    made = [one for one in records if isinstance(one, ExchangeRecord) and one.details.get("updates")]
    for server in ("3", "4"):
        assert {one.details["updates"] for one in made if one.peer == server} == {4}


def test_two_workers_of_a_synchronous_run_wait_for_the_slow_third_and_it_for_neither() -> None:
    plain = Scenario.plain(Settings(**OWN))
    slow = replace(plain.groups[0], peers=1, step_s=1.0)
    groups = (slow, replace(plain.groups[0], peers=2), Group(peers=2, link=plain.groups[0].link, role="server"))
    records = list[Record]()
    run_virtual(World(toy_task(), replace(plain, groups=groups), records.append).run(within_s=300), seed=0)
    of_workers = [one for one in records if isinstance(one, ExchangeRecord) and one.peer in ("0", "1", "2")]
    assert {(one.peer, one.waited_for) for one in of_workers if one.version > 1} == {("0", ""), ("1", "0"), ("2", "0")}


@pytest.mark.parametrize("stopped", [True, False])
def test_workers_end_at_once_when_the_last_server_is_stopped_and_wait_for_one_that_is_lost(stopped: bool) -> None:
    settings = Settings(**{**OWN, "steps": 10**6, "patience_s": 1.0})
    ends, begun = set[asyncio.Task[None]](), list[float]()

    async def end(server: Life) -> None:
        if stopped:
            await server.peer.conversation.leave("stopped by its user; exchange 7 is saved")
        server.crash()

    def tell(record: Record) -> None:
        if isinstance(record, ExchangeRecord) and record.version == 7 and not ends:
            begun.append(asyncio.get_running_loop().time())
            ends.update(asyncio.create_task(end(life)) for life in world.lives[3:])

    world = World(toy_task(), Scenario.plain(settings), tell)
    with pytest.raises(LostRange):
        run_virtual(world.run(within_s=300), seed=0)
    assert len(ends) == 2
    took_s = max(entry.time_s for entry in world.log.entries if isinstance(entry.event, Gone)) - begun[0]
    said = {str(life.error) for life in world.lives[:3]}
    advice = "resume the run where its servers were, by --resume, and join it anew"
    if stopped:
        assert said == {f"no server is left, and the last left: stopped by its user; exchange 7 is saved: {advice}"}
        assert took_s < settings.patience_s
    else:
        assert said == {f"no server is left, and none has come back: {advice}"}
        assert took_s > SERVERLESS_PATIENCES * settings.patience_s


TELLING = (0, 9, 22, 24)
"""Seeds that notice most of the bugs in the list of mutants."""


@pytest.mark.parametrize("seeds", [TELLING, soaked(range(100, 104)), soaked(range(200, 204))])
def test_the_parameter_server_keeps_its_promises_under_drawn_faults(seeds: Sequence[int]) -> None:
    """`samovar simulate --sweep 300 --protocol parameter-server` judges more of them."""
    wrong = {seed: judge(draw(seed, "parameter_server")).broken for seed in seeds}
    assert {seed: how for seed, how in wrong.items() if how} == {}


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        (("--copies", "3"), "--copies"),
        (("--servers", "0"), "--servers"),
        (("--consistency", "ssp:-1"), "--consistency"),
        (("--server-update", "rmsprop"), "--server-update"),
        (("--algorithm", "backup:1", "--consistency", "ssp:2"), "--consistency"),
        (("--period", "4"), "--period"),
        (("--stop", "loss <= 0.1"), "end it by --steps"),
    ],
)
def test_settings_that_the_server_cannot_take_are_refused_in_one_line(flags: tuple[str, ...], named: str) -> None:
    ended = verb("simulate", UNION, "--protocol", "parameter-server", *flags)
    assert ended.exit_code == 2
    assert named in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_last_copies_that_go_with_their_servers_end_the_run_in_one_line() -> None:
    settings = Settings(**{**OWN, "copies": 1, "steps": 200, "patience_s": 0.5})
    world = World(
        load_task(UNION), replace(Scenario.plain(settings), faults=(Fault(kind=Kind.CRASH, who=(4,), at_s=0.5),))
    )
    run_virtual(world.run(within_s=300), seed=0)
    errors = [str(life.error) for life in world.lives if isinstance(life.peer.conversation, Worker)]
    assert len(errors) == 3
    assert all("--copies" in error and "\n" not in error for error in errors)


def test_a_worker_that_only_reads_is_told_too_that_the_last_copies_are_gone() -> None:
    """It asks the last server of a chain, and only the first looks for copies."""
    settings = Settings(**{**OWN, "servers": 4, "copies": 2, "patience_s": 0.5})
    gone = Placement(tuple(f"peer-{index}" for index in range(3, 7)), 2).chain(0)
    both = tuple(int(server.removeprefix("peer-")) for server in gone)
    world = events(settings, [Fault(kind=Kind.CRASH, who=both, at_message=Moment("Pull", 1, sent=True))])
    errors = [str(life.error) for life in world.lives if isinstance(life.peer.conversation, Worker)]
    assert ["--copies" in error for error in errors] == [True, True, True]


def test_newcomers_do_not_lengthen_the_wait_for_the_last_copies() -> None:
    """Each view begins the search for copies anew, but not the time for which the servers wait for them."""
    settings = Settings(**{**OWN, "copies": 1, "patience_s": 0.5, "steps": 10**6})
    plain = Scenario.plain(settings)
    groups = [replace(group, step_s=0.2) for group in plain.groups]
    came = [(5 + number, 2.0 + 0.7 * number) for number in range(6)]
    scenario = replace(
        plain,
        groups=(*groups, replace(groups[0], peers=len(came))),
        arrivals=tuple(came),
        faults=(Fault(kind=Kind.CRASH, who=(4,), at_s=1.0),),
    )
    world = run(scenario)
    ends_s = [time_s for time_s, life, event in world.log.entries if isinstance(event, Gone) and life in ("0.0", "1.0")]
    assert len(ends_s) == 2
    assert max(ends_s) < came[4][1]


def test_a_server_whose_checkpoint_holds_no_copy_begins_with_the_initial_model() -> None:
    """It was written before the servers had agreed on their copies."""

    def first_copies(*saved: Snapshot) -> dict[int, list[float]]:
        world = World(toy_task(), Scenario.plain(Settings(**{**OWN, "copies": 1})))
        for snapshot in saved:
            world._disks[3].save(snapshot)
        run_virtual(world.run(within_s=300), seed=0)
        assert all(life.result is not None and life.result.finished for life in world.lives)
        took = [entry.event for entry in world.log.entries if isinstance(entry.event, Took)]
        return {event.range: event.values.tolist() for event in took if event.base == 0}

    initial = first_copies()
    assert initial
    assert first_copies(Snapshot({}, {"parameter_server": [], "elapsed_s": 0.0})) == initial


@pytest.mark.parametrize("consistency", ["bsp", "ssp:2", "async"])
def test_new_workers_of_a_resumed_run_go_on_from_the_clock_that_those_before_had(consistency: str) -> None:
    """Also where those had ended: their last clocks are in no copy of a range."""
    settings = Settings(**{**OWN, "consistency": consistency})
    first = World(toy_task(), Scenario.plain(settings))
    run_virtual(first.run(within_s=300), seed=0)
    records = list[Record]()
    again = World(toy_task(), Scenario.plain(replace(settings, steps=20)), records.append)
    for server in (3, 4):
        kept = first._disks[server].kept
        assert kept is not None
        again._disks[server].save(kept)
    run_virtual(again.run(within_s=300), seed=1)
    exchanges = [one for one in records if isinstance(one, ExchangeRecord)]
    clocks = {peer: [one.version for one in exchanges if one.peer == peer] for peer in ("0", "1", "2", "3", "4")}
    assert [clocks[worker] for worker in ("0", "1", "2")] == [[*range(13, 21)]] * 3
    assert [min(clocks[server]) > 12 and max(clocks[server]) == 20 for server in ("3", "4")] == [True, True]
    assert max(one.step for one in exchanges) == 20


def test_copies_of_the_run_before_are_in_a_checkpoint_until_the_new_run_has_its_own() -> None:
    keys = Keys((Part(0, 1), Part(1, 2)), 2, torch.float32)
    store = Store(keys, Add())
    store.copies = {0: Copy(torch.ones(1), {}, term=3, restored=True), 1: Copy(torch.ones(1), {})}
    store.begin_anew()
    tensors, numbers = saved(store)
    again = Store(keys, Add())
    restored(again, tensors, numbers)
    assert {number: copy.standing for number, copy in again.copies.items()} == {0: 3}


def test_a_checkpoint_of_other_ranges_is_refused() -> None:
    held = Store(Keys((Part(0, 1), Part(1, 2)), 2, torch.float32), Add())
    held.copies = {1: Copy(torch.ones(1), {}, term=3)}
    for other in ((Part(0, 2),), (Part(0, 1), Part(1, 3))):
        with pytest.raises(ValueError, match="another model, --ranges"):
            restored(Store(Keys(other, other[-1].stop, torch.float32), Add()), *saved(held))


def test_a_server_is_not_lost_behind_its_ranges_on_slow_links() -> None:
    """Of 65,000 parameters, with the default ranges and 1 Mbit/s: each of eight workers may have a range under way."""
    settings = Settings(protocol="parameter-server", device="cpu", servers=1, peers=8, steps=3, patience_s=5.0)
    plain = Scenario.plain(settings)
    groups = tuple(replace(group, link=replace(group.link, bandwidth_Bps=125_000)) for group in plain.groups)
    world = World(toy_task(65_000), replace(plain, toy_size=65_000, groups=groups))
    assert run_and_judge(world, within_s=600)[1] is None
    finished = [life for _, life, event in world.log.entries if isinstance(event, Gone) and event.finished]
    assert len(finished) == 9
