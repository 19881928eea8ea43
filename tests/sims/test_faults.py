"""Every fault does what it says, to whom it says and for as long as it says, and no more."""

import asyncio
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import Any

import pytest

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.rounds import Committed, Contributed
from samovar.protocols.transport import Arrivals
from samovar.sims.frames import kind_of
from samovar.sims.scenarios.noise import QUIET, Noise
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Moment, Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.common_memory import CommonMemory
from samovar.sims.world.event_log import Began, Fell, Gone
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.machine import Machine
from samovar.sims.world.network import Network
from samovar.sims.world.simulated_peer import Disk, Life, dead
from samovar.sims.world.transport import SimulatedTransport
from samovar.sims.world.wall_clock import WallClock
from samovar.sims.world.ways import Frame
from samovar.sims.world.world import World

# ---- in a world of peers

AT_S, FOR_S, UNTIL_S = 1.2, 1.5, 2.7
LATENCY_S, STEP_S = 0.02, 0.05
SETTLED_S = AT_S + 3 * LATENCY_S
"""What was under way when the fault fell has arrived."""


@dataclass(frozen=True)
class Arrival:
    time_s: float
    sender: str
    to: str

    @property
    def during(self) -> bool:
        """While the fault was there."""
        return SETTLED_S < self.time_s < UNTIL_S


class Lived(World):
    """A world that has come to its end, and what was delivered in it."""

    def __init__(
        self,
        kind: Kind,
        *who: int | str,
        peers: int = 6,
        for_s: float = FOR_S,
        until_s: float | None = None,
        **more: object,
    ) -> None:
        settings = Settings(
            peers=peers, period="4", steps=40, seed=3, patience_s=2.0, device="cpu", checkpoint_every_s=0.0
        )
        link = LinkSpec(bandwidth_Bps=1.25e6, latency_s=LATENCY_S)
        moment = {} if more.keys() & {"at_event", "at_step", "at_message"} else {"at_s": AT_S}
        fault = Fault(kind=kind, who=who, for_s=for_s, **moment, **more)  # type: ignore[arg-type]
        groups = (Group(peers=peers, link=link, step_s=STEP_S),)
        scenario = Scenario(settings=settings, groups=groups, faults=(fault,), faults_until_s=until_s)
        super().__init__(toy_task(), scenario)
        self.arrivals: list[Arrival] = []
        self.ahead_s: dict[str, list[float]] = defaultdict(list)
        """By how much the clock of each goes before virtual time, at each delivery to it."""
        self.frames: dict[tuple[str, bool], list[tuple[float, Frame]]] = defaultdict(list)
        """By kind of message, and whether they were just sent or received."""
        self.network.seen.append(self._seen)
        self._usual, self.network._deliver = self.network._deliver, self._watched  # type: ignore[method-assign]
        run_virtual(self.run(within_s=300), seed=3)

    def _watched(self, frame: Frame, *more: Any) -> None:
        before, now = self.network.delivered, asyncio.get_running_loop().time()
        self._usual(frame, *more)
        self.ahead_s[frame.to].append(time.time() - now)
        if self.network.delivered > before:
            self.arrivals.append(Arrival(now, frame.sender, frame.to))

    def _seen(self, frame: Frame, sent: bool) -> None:
        self.frames[kind_of(frame.header), sent].append((asyncio.get_running_loop().time(), frame))

    def during(self) -> set[tuple[str, str]]:
        """Between whom something was delivered while the fault was there."""
        return {(arrival.sender[-1], arrival.to[-1]) for arrival in self.arrivals if arrival.during}

    def events(self, life: str, kind: type) -> list[tuple[float, object]]:
        return [
            (entry.time_s, entry.event)
            for entry in self.log.entries
            if entry.life == life and type(entry.event) is kind
        ]

    def gained_s(self, peer: str) -> float:
        """How much its clock has been put forward, from the first to the last that it heard."""
        return self.ahead_s[peer][-1] - self.ahead_s[peer][0]

    def finished(self) -> set[str]:
        return {life.name for life in self.lives if life.result is not None and life.result.finished}

    def longest_training_s(self, index: int) -> float:
        """From one result to the next contribution."""
        began, longest = 0.0, 0.0
        for entry in self.log.entries:
            if entry.life == f"{index}.0" and isinstance(entry.event, Committed):
                began = entry.time_s
            elif entry.life == f"{index}.0" and isinstance(entry.event, Contributed) and began:
                longest, began = max(longest, entry.time_s - began), 0.0
        return longest


EVERYBODY = {f"{index}.0" for index in range(6)}


def test_a_crashed_peer_is_gone_for_good_and_the_others_go_on() -> None:
    world = Lived(Kind.CRASH, 1)
    assert not [arrival for arrival in world.arrivals if arrival.time_s > AT_S and arrival.to == "peer-1"]
    assert not [arrival for arrival in world.arrivals if arrival.time_s > SETTLED_S and arrival.sender == "peer-1"]
    assert world.log.entries[-1].time_s > UNTIL_S
    assert [gone for _, gone in world.events("1.0", Gone)] == [Gone(crashed=True)]
    assert world.finished() == EVERYBODY - {"1.0"}


def test_a_paused_peer_does_nothing_and_then_goes_on() -> None:
    world = Lived(Kind.PAUSE, 1)
    assert {sender for sender, _ in world.during()} == set("02345")
    assert not [entry for entry in world.log.entries if entry.life == "1.0" and AT_S < entry.time_s < UNTIL_S]
    assert world.finished() == EVERYBODY


@pytest.mark.parametrize(("kind", "remembers"), [(Kind.RESTART, True), (Kind.REPLACE, False)])
def test_a_restarted_peer_begins_with_its_disk_or_without(
    kind: Kind, remembers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: dict[str, int] = {}
    begin = Life.begin

    def seen(self: Life, *args: object) -> None:
        rounds[self.name] = self.peer.conversation.state.round
        begin(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Life, "begin", seen)
    world = Lived(kind, 1)
    assert [began for began, _ in world.events("1.1", Began)] == [UNTIL_S]
    assert (rounds["1.1"] > 0) is remembers
    assert not {pair for pair in world.during() if "1" in pair}
    assert world.finished() == EVERYBODY - {"1.0"} | {"1.1"}


def test_after_an_outage_the_run_is_begun_again_from_checkpoints_of_different_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rounds: dict[str, int] = {}
    begin = Life.begin

    def seen(self: Life, *args: object) -> None:
        rounds[self.name] = self.peer.conversation.state.round
        begin(self, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Life, "begin", seen)
    world = Lived(Kind.OUTAGE)
    assert all(world.events(life, Gone)[0][0] == AT_S for life in EVERYBODY)
    assert not {arrival for arrival in world.arrivals if SETTLED_S < arrival.time_s < UNTIL_S}
    again = [rounds[f"{index}.1"] for index in range(6)]
    assert max(again) - min(again) >= 2
    assert world.finished() == {f"{index}.1" for index in range(6)}
    first = min(
        event.round for life in EVERYBODY for _, event in world.events(f"{life[0]}.1", Committed) if event.attempt
    )
    assert first == max(again) + 1
    assert broken(world.scenario, world.log.entries) is None


def test_a_slow_peer_trains_for_longer() -> None:
    world = Lived(Kind.SLOW, 1, factor=5.0)
    assert world.longest_training_s(0) == pytest.approx(4 * STEP_S)
    assert world.longest_training_s(1) == pytest.approx(5 * 4 * STEP_S)


def test_a_clean_partition_lets_nothing_pass_either_way() -> None:
    world = Lived(Kind.CUT_OFF, 1, 2)
    crossing = {(one, other) for one, other in world.during() if (one in "12") != (other in "12")}
    assert not crossing
    assert ("1", "2") in world.during()
    assert world.network.happened["cut"] > 0


def test_an_asymmetric_partition_lets_one_way_pass() -> None:
    world = Lived(Kind.DEAFEN, 1)
    assert not {pair for pair in world.during() if pair[1] == "1"}
    assert {pair for pair in world.during() if pair[0] == "1"}


@pytest.mark.parametrize("peers", [4, 5, 6, 8])
def test_in_a_ring_of_majorities_each_peer_reaches_more_than_half_and_none_reaches_all(peers: int) -> None:
    cut = Counter[int]()
    network = Network(LinkSpec(bandwidth_Bps=1e6, latency_s=0.1), seed=1)
    world = World(toy_task(), Scenario.plain(Settings(peers=peers, device="cpu")))
    network.cut = lambda sender, to: cut.update([sender])  # type: ignore[method-assign, assignment]
    world.network = network
    world.nemesis._deeds._ring(Fault(kind=Kind.RING), [])
    assert len(set(cut.values())) == 1
    assert len(cut) == peers
    assert peers // 2 < peers - cut["peer-0"] < peers


def test_a_cut_ring_parts_peers_that_are_far_from_each_other_until_it_is_healed() -> None:
    world = Lived(Kind.RING)
    assert not {pair for pair in world.during() if pair[0] in "012" and int(pair[1]) - int(pair[0]) == 3}
    talked_s = [arrival.time_s for arrival in world.arrivals if (arrival.sender, arrival.to) == ("peer-0", "peer-3")]
    assert min(talked_s) < AT_S
    assert max(talked_s) > UNTIL_S


def test_clogged_messages_come_when_the_clog_is_over() -> None:
    world = Lived(Kind.CLOG, 1)
    assert not {pair for pair in world.during() if pair[0] == "1"}
    burst = [
        arrival for arrival in world.arrivals if arrival.sender == "peer-1" and 0 <= arrival.time_s - UNTIL_S < 1e-6
    ]
    assert len(burst) > 3


def test_noise_loses_doubles_reorders_and_garbles_while_it_lasts() -> None:
    noise = Noise(loss=0.1, duplicate=0.2, reorder=0.2, corrupt=0.02)
    world = Lived(Kind.NOISE, noise=noise)
    assert all(world.network.happened[what] > 0 for what in ("lost", "doubled", "overtaken", "garbled"))
    assert world.network.noise is QUIET
    assert world.log.reached["a message was sent again"] > 0
    assert world.finished() == EVERYBODY


def test_a_slower_link_of_a_fault_is_slower_while_the_fault_lasts() -> None:
    slow = LinkSpec(bandwidth_Bps=1.25e6, latency_s=0.4)
    world, usual = Lived(Kind.LINK, 1, link=slow), Lived(Kind.CLOCK)

    def rounds(world: Lived) -> int:
        return sum(AT_S < time_s < UNTIL_S for time_s, _ in world.events("0.0", Committed))

    assert rounds(world) < rounds(usual)
    assert world.finished() == EVERYBODY


def test_on_a_full_disk_no_checkpoint_is_kept_and_its_owner_goes_on() -> None:
    world = Lived(Kind.FULL_DISK, 1, for_s=0.0)
    kept = [life.disk.kept.numbers["state"]["round"] for life in world.lives if life.disk.kept is not None]
    before = [event.round for at_s, event in world.events("1.0", Committed) if at_s < AT_S]  # type: ignore[attr-defined]
    assert kept[1] == before[-1] < min(kept[0], *kept[2:])
    assert world.finished() == EVERYBODY


def test_two_parted_peers_do_not_reach_each_other_and_all_others_do() -> None:
    world = Lived(Kind.SEPARATE, 1, 4)
    assert not world.during() & {("1", "4"), ("4", "1")}
    assert {("0", "1"), ("1", "0"), ("0", "4"), ("4", "0")} <= world.during()
    talked_s = [arrival.time_s for arrival in world.arrivals if (arrival.sender, arrival.to) == ("peer-1", "peer-4")]
    assert min(talked_s) < AT_S
    assert max(talked_s) > UNTIL_S
    assert world.finished() == EVERYBODY


def test_a_step_that_hangs_ends_when_it_is_over_and_its_peer_talks_meanwhile() -> None:
    world = Lived(Kind.HANG, 1)
    assert world.longest_training_s(1) == pytest.approx(FOR_S, abs=8 * STEP_S)
    assert world.longest_training_s(0) == pytest.approx(4 * STEP_S)
    assert {pair for pair in world.during() if pair[0] == "1"}
    assert world.finished() == EVERYBODY


def test_a_contribution_is_spoiled_once() -> None:
    world = Lived(Kind.SPOIL, 1, factor=1e6)
    largest = [
        max(float(event.vector.max()) for _, event in world.events(f"{index}.0", Contributed))  # type: ignore[attr-defined]
        for index in range(6)
    ]
    assert largest[1] == 1e6
    brought = [float(event.vector.max()) for _, event in world.events("1.0", Contributed)]  # type: ignore[attr-defined]
    assert brought.count(1e6) == 1
    assert all(value < 1e6 for index, value in enumerate(largest) if index != 1), "it is one of six in the mean"


def test_hostile_keys_speak_while_the_fault_lasts_and_all_go_on() -> None:
    world = Lived(Kind.HOSTILE)
    hostile = [arrival for arrival in world.arrivals if not arrival.sender.startswith("peer-")]
    assert {arrival.sender.rstrip("0123456789") for arrival in hostile} == {"hostile-", "guest/"}
    sent = [row for (_, sent), rows in world.frames.items() if sent for row in rows]
    said_s = [time_s for time_s, frame in sent if not frame.sender.startswith("peer-")]
    assert len(said_s) > 20
    assert all(AT_S <= time_s <= UNTIL_S for time_s in said_s), "what is under way then may still arrive"
    assert world.finished() == EVERYBODY


@pytest.mark.parametrize("sent", [True, False])
@pytest.mark.parametrize("who", ["sender", "receiver"])
def test_a_fault_at_a_message_strikes_its_sender_or_its_receiver(sent: bool, who: str) -> None:
    """The coordinator, peer 0, posts a Commit to each of the other five; the 12th is the second of its round."""
    world = Lived(Kind.CRASH, who, at_message=Moment("Commit", 12, sent))
    ((at_s, fell),) = world.events("nemesis", Fell)
    time_s, frame = world.frames["Commit", sent][11]
    assert time_s == at_s
    struck = frame.sender if who == "sender" else frame.to
    assert fell == Fell(Kind.CRASH, (f"{struck[-1]}.0",))
    if sent and who == "sender":
        assert [frame.sender for _, frame in world.frames["Commit", True][:13]].count("peer-0") == 12, "no other leaves"
        assert not [event for at_s, event in world.events("0.0", Committed) if at_s >= time_s], "nor is anything done"
    if sent and who == "receiver":
        assert frame not in [frame for _, frame in world.frames["Commit", False]]
    if not sent and who == "receiver":
        assert [event.round for _, event in world.events(f"{struck[-1]}.0", Committed)][-1] == 2, "it is amid its turn"  # type: ignore[attr-defined]


def test_messages_count_from_a_time_on_and_from_the_first_of_another_kind_on() -> None:
    for moment, at_s in ((Moment("Have", 3, sent=False), 1.0), (Moment("Have", 3, sent=False, after="Commit"), None)):
        world = Lived(Kind.CRASH, "receiver", at_message=moment, at_s=at_s)
        ((fell_s, _),) = world.events("nemesis", Fell)
        since_s = at_s or world.frames["Commit", False][0][0]
        assert [time_s for time_s, _ in world.frames["Have", False] if time_s >= since_s][2] == fell_s


def test_a_disk_keeps_a_record_until_it_is_lost_and_none_when_it_is_full() -> None:
    disk, machine = Disk(CommonMemory()), Machine("1.0", lambda handle: None)
    shelf = disk.record

    async def main() -> None:
        assert (shelf.load("seat"), shelf.empty) == (None, True)
        await shelf.save("seat", b"promised")
        disk.full += 1
        with pytest.raises(OSError, match="No space left on device"):
            await shelf.save("seat", b"adopted")
        disk.full -= 1
        under_way = machine.spawn(shelf.save("seat", b"under way"), "save")
        await asyncio.sleep(0)
        machine.crash()
        assert machine.context.run(dead)
        machine.context.run(shelf.clear)
        await asyncio.sleep(1.0)
        assert not under_way.done()
        assert (shelf.load("seat"), shelf.empty) == (b"promised", False)
        shelf.clear()
        assert shelf.empty
        machine.clean_up()

    run_virtual(main())


@pytest.mark.parametrize(("kind", "kept"), [(Kind.RESTART, True), (Kind.REPLACE, False)])
def test_a_record_outlives_a_restart_and_not_the_loss_of_its_disk(
    kind: Kind, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin = Life.begin

    def seen(self: Life, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        self.machine.spawn(self.disk.record.save("seat", b"promised"), "save")

    monkeypatch.setattr(Life, "begin", seen)
    world = Lived(kind, 1)
    assert [began.remembers for _, began in world.events("1.0", Began)] == [False]
    assert [began.remembers for _, began in world.events("1.1", Began)] == [kept]


def test_a_clog_is_over_when_all_is_healed() -> None:
    world = Lived(Kind.CLOG, 1, for_s=10.0, until_s=UNTIL_S)
    assert world.events("nemesis", Fell)[0][1] == Fell(Kind.CLOG, ("1.0",), UNTIL_S)
    assert [
        arrival for arrival in world.arrivals if arrival.sender == "peer-1" and 0 <= arrival.time_s - UNTIL_S < 1e-6
    ]
    assert world.finished() == EVERYBODY


def test_the_time_of_day_jumps_for_all_peers() -> None:
    world = Lived(Kind.CLOCK, factor=3600.0)
    for peer in world.ids:
        assert world.gained_s(peer) == pytest.approx(3600.0)


def test_the_clock_of_one_peer_jumps_and_drifts_and_nothing_comes_of_it() -> None:
    usual, world = Lived(Kind.CLOCK, factor=0.0), Lived(Kind.CLOCK, 1, 2, factor=-60.0, drift=0.5)
    for peer in ("peer-1", "peer-2"):
        last_s = max(arrival.time_s for arrival in world.arrivals if arrival.to == peer)
        assert world.gained_s(peer) == pytest.approx(-60.0 + 0.5 * (last_s - AT_S))
    assert world.gained_s("peer-0") == world.gained_s("peer-5") == pytest.approx(0.0, abs=1e-3)
    assert world.network.digest == usual.network.digest


def test_a_clock_goes_on_as_it_was_when_its_peer_is_started_anew() -> None:
    now = [100.0]
    clock = WallClock(lambda: now[0])

    def shows(name: str) -> float:
        return Machine(name, lambda handle: None).context.run(clock.read)

    first = shows("3.0")
    clock.change({"3"}, jump_s=5.0, drift=0.1)
    now[0] = 110.0
    clock.change({"3"}, drift=-0.2)
    clock.change((), jump_s=1000.0)
    now[0] = 120.0
    assert shows("3.1") - first == pytest.approx(20.0 + 5.0 + 1.0 - 1.0 + 1000.0)
    assert shows("30.0") - first == clock.read() - first == pytest.approx(1020.0)


def test_a_fault_falls_before_a_delivery_at_a_step_or_at_a_time_and_on_a_role() -> None:
    at_event, at_step = Lived(Kind.CRASH, "newest", at_event=150), Lived(Kind.CRASH, 2, at_step=17)
    (fell,) = at_event.events("nemesis", Fell)
    assert sum(arrival.time_s <= fell[0] for arrival in at_event.arrivals) - 149 in (0, 1)
    assert fell[1] == Fell(Kind.CRASH, ("5.0",))
    assert [fell.who for _, fell in at_step.events("nemesis", Fell)] == [("2.0",)]  # type: ignore[attr-defined]
    assert len(at_step.events("2.0", Contributed)) == 4, "in the fifth of its periods of 4 steps"
    coordinator = Lived(Kind.CRASH, "coordinator")
    assert [fell for _, fell in coordinator.events("nemesis", Fell)] == [Fell(Kind.CRASH, ("0.0",))]


# ---- noise, at its extreme: then there is no chance about it


class Heard:
    """What arrives at b of 100 messages from a, on a network with that noise."""

    def __init__(self, noise: Noise) -> None:
        self.headers: list[int] = []
        self.reconnected: list[str] = []
        self.happened: Counter[str] = Counter()
        run_virtual(self._send(noise))

    async def _send(self, noise: Noise) -> None:
        network = Network(LinkSpec(bandwidth_Bps=1e6, latency_s=0.1), seed=1, noise=noise)
        a, b = SimulatedTransport(network, "a"), SimulatedTransport(network, "b")
        a.open(Arrivals(lambda *_: None, self.reconnected.append, lambda *_: None))
        b.open(Arrivals(lambda sender, header, *_: self.headers.append(header[0]), lambda _: None, lambda *_: None))
        b.admit("a")
        for number in range(100):
            a.post("b", bytes([number]), b"")
            await asyncio.sleep(0.01)
        await asyncio.sleep(10)
        self.happened = network.happened


def test_without_noise_all_messages_arrive_once_and_in_order() -> None:
    heard = Heard(Noise())
    assert heard.headers == list(range(100))
    assert not heard.happened


def test_a_lost_message_does_not_arrive() -> None:
    assert Heard(Noise(loss=1.0)).headers == []
    some = Heard(Noise(loss=0.5))
    assert 20 < some.happened["lost"] == 100 - len(some.headers) < 80


def test_a_doubled_message_arrives_twice() -> None:
    assert Counter(Heard(Noise(duplicate=1.0)).headers) == dict.fromkeys(range(100), 2)


def test_an_overtaken_message_arrives_once_and_later_than_the_next_one() -> None:
    heard = Heard(Noise(reorder=1.0))
    assert sorted(heard.headers) == list(range(100)) != heard.headers


def test_a_garbled_message_breaks_the_connection_and_is_never_seen() -> None:
    heard = Heard(Noise(corrupt=1.0))
    assert heard.headers == []
    assert heard.reconnected
    assert heard.happened["garbled"] == 100
