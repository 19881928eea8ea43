"""Budgets: what a peer sends and receives in any second, as the network counts it, and in a day."""

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import Parcel, Postcard, collect, eventually, numbers, over
from simulated import PATIENCE_S, endpoint_in, now, simulate
from simulated import no_complaints as no_complaints

from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.edge import HELD_BYTES, budget_of
from samovar.peers.settings.fields import SettingsError
from samovar.peers.settings.link_text import parse_link, parse_rate
from samovar.protocols.budget import DAY_S, Budget, Day
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link_spec import link_bytes
from samovar.protocols.shaping.budgeted_transport import Budgeted
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport
from samovar.sims.world.ways import Frame

RATE = "200kbit"


def most_in(seconds: float, passed: list[tuple[float, int]]) -> int:
    """The most bytes of (time, bytes) in any window of so many seconds."""
    most = first = within = 0
    for when, size in passed:
        within += size
        while passed[first][0] <= when - seconds:
            within -= passed[first][1]
            first += 1
        most = max(most, within)
    return most


class Counted:
    """What leaves the peer `name` and what arrives at it: (time, bytes with all headers)."""

    def __init__(self, network: Network, name: str) -> None:
        self.name = name
        self.up: list[tuple[float, int]] = []
        self.down: list[tuple[float, int]] = []
        network.seen.append(self._see)

    def _see(self, frame: Frame, sent: bool) -> None:
        if sent and frame.sender == self.name:
            self.up.append((now(), link_bytes(frame.size)))
        elif not sent and frame.to == self.name:
            self.down.append((now(), link_bytes(frame.size)))


def thrifty(network: Network, name: str, budget: Budget) -> Endpoint:
    transport = Budgeted(SimulatedTransport(network, name), budget, encrypted=True)
    return Endpoint(transport, patience_s=PATIENCE_S, rng=random.Random(name))


def acquaint(*endpoints: Endpoint) -> None:
    for one in endpoints:
        for other in endpoints:
            if one is not other:
                one.dial(other.id, other.address)


def of_rate(rate: str = RATE, day: Day | None = None) -> Budget:
    return Budget(parse_rate(rate), day, HELD_BYTES)


@pytest.mark.parametrize("rate", ["32kbit", "200kbit", "2mbit"])
def test_a_second_never_has_more_than_the_budget_and_a_chunk(rate: str) -> None:
    """Both ways at once, with two others that have no budget and send as fast as they are let."""
    network, rate_Bps = Network(parse_link("100mbit,20ms"), 1), parse_rate(rate)
    chunk = Budget(rate_Bps, None, 0).chunk_bytes
    assert chunk is not None
    passed = Counted(network, "a")

    async def main() -> None:
        a, b, c = thrifty(network, "a", of_rate(rate)), endpoint_in(network, "b"), endpoint_in(network, "c")
        ends = a, b, c
        for end in ends:
            await end.open()
        acquaint(*ends)
        heard = {end.id: collect(end) for end in ends}
        size = int(6 * rate_Bps)
        sending = [ship_all(a, b, size), ship_all(a, c, size), ship_all(b, a, size), ship_all(c, a, size)]
        await asyncio.gather(*sending)
        for end in ends:
            await end.drain()
        assert all(len(heard[end.id][Parcel]) for end in ends)
        for end in ends:
            end.abort()

    simulate(main(), within_s=200.0)
    largest = max(size for _, size in (*passed.up, *passed.down))
    assert largest <= max(chunk, 8192) + 600, "a chunk"
    assert most_in(1.0, passed.up) <= rate_Bps + largest
    assert most_in(1.0, passed.down) <= rate_Bps + 2 * largest, "each of two senders may overshoot by a chunk"
    spent_s = passed.up[-1][0] - passed.up[0][0]
    assert sum(size for _, size in passed.up) >= 0.8 * rate_Bps * spent_s, "nor does it leave much of it unused"


async def ship_all(sender: Endpoint, to: Endpoint, size: int) -> None:
    """Send so many bytes in chunks that suit the link."""
    at = 0
    while at < size:
        chunk = sender.chunk_bytes(to.id)
        await over(sender).send(to.id, Parcel(at), bytes(chunk))
        at += chunk


def test_a_control_message_overtakes_the_data_that_waits() -> None:
    network = Network(parse_link("100mbit,20ms"), 1)

    async def main() -> None:
        a, b = thrifty(network, "a", of_rate()), endpoint_in(network, "b")
        await a.open()
        await b.open()
        acquaint(a, b)
        heard = collect(b)
        sending = asyncio.ensure_future(ship_all(a, b, 200_000))
        await eventually(lambda: len(heard[Parcel]) > 3)
        said_s = now()
        over(a).post("b", Postcard(1))
        await eventually(lambda: bool(heard[Postcard]))
        assert now() - said_s < 0.6, "a chunk may be on its way, the window is not waited for"
        assert not sending.done()
        await sending
        await a.drain()
        order = numbers(heard[Parcel])
        assert order == sorted(order)
        assert a.links.known("b").retransmitted == 0, "no ping overtakes what it asks for"
        a.abort()
        b.abort()

    simulate(main())


def test_many_links_stay_alive_on_a_small_budget() -> None:
    """Each has a window of data to send: heartbeats must not wait behind all of them."""
    network = Network(parse_link("100mbit,20ms"), 1)

    async def main() -> None:
        a, others = thrifty(network, "a", of_rate("64kbit")), [endpoint_in(network, f"b{n}") for n in range(4)]
        lost: list[str] = []
        for end in (a, *others):
            await end.open()
            end.on_lost.append(lambda peer, why: lost.append(why))
        acquaint(a, *others)
        for end in others:
            collect(end)
            over(end).watch({"a"})
        over(a).watch({end.id for end in others})
        await asyncio.gather(*(ship_all(a, end, 60_000) for end in others))
        await a.drain()
        assert lost == []
        for end in (a, *others):
            end.abort()

    simulate(main())


def test_a_lost_peers_frames_are_not_sent_later() -> None:
    """What they hold may be written to by then."""
    network = Network(parse_link("100mbit,20ms"), 1)
    passed = Counted(network, "a")

    async def main() -> None:
        a, b = thrifty(network, "a", of_rate()), endpoint_in(network, "b")
        await a.open()
        await b.open()
        acquaint(a, b)
        collect(b)
        sending = asyncio.ensure_future(ship_all(a, b, 200_000))
        await asyncio.sleep(1.0)
        a.gone("b", "seen to end")
        sending.cancel()
        passed.up.clear()
        await asyncio.sleep(2.0)
        assert max((size for _, size in passed.up), default=0) < 1000, "no data"
        a.abort()
        b.abort()

    simulate(main())


def spends(day: Day, seed: int) -> Iterator[tuple[float, int]]:
    """(time, bytes) of a peer that takes all it gets, and sleeps when it has to."""
    chance, clock = random.Random(seed), 0.0
    while clock < 5 * DAY_S:
        while not day.must_sleep:
            size = chance.randrange(1, 20_000)
            day.charge(size, clock)
            yield clock, size
            clock += chance.uniform(0.0, 20.0)
        clock += max(0.0, day.sleeps_s(clock))
        day.asleep = False


@pytest.mark.parametrize("seed", range(3))
def test_no_24_hours_have_more_than_a_days_bytes(seed: int) -> None:
    spent = list(spends(Day(50_000_000), seed))
    assert most_in(DAY_S, spent) <= 50_000_000
    assert sum(size for when, size in spent if when < 4 * DAY_S) >= 0.5 * 4 * 50_000_000, "half of them at least"


def test_a_process_that_begins_anew_gets_no_fresh_day() -> None:
    day = Day(50_000_000)
    day.charge(24_990_000, 100.0)
    assert day.must_sleep
    again = Day(50_000_000, day.left_bytes(100.0))
    assert again.left_bytes(5_000.0) == pytest.approx(10_000, rel=0.05)


def test_a_budget_that_starves_heartbeats_is_refused() -> None:
    with pytest.raises(SettingsError, match="at least 24kbit with a patience of 5 s"):
        Settings(budget="10kbit")
    assert Settings(budget="10kbit", patience_s=20.0).budget == "10kbit"
    with pytest.raises(SettingsError, match="at least 1MB"):
        Settings(budget_per_day="10kB")


def test_an_edge_peer_listens_nowhere_has_one_thread_and_keeps_little() -> None:
    edge = Settings(edge=True)
    assert (edge.listens_at, edge.threads) == ("none", 1)
    budget = budget_of(edge)
    assert budget is not None
    assert (budget.held_bytes, budget.rate_Bps, budget.day) == (4 << 20, None, None)
    assert budget_of(Settings()) is None
    with pytest.raises(SettingsError, match="must be none with --edge: leave out one of the two"):
        Settings(edge=True, listen="tcp://*:4000")


def test_an_address_that_is_given_beside_edge_is_refused_even_if_it_is_the_usual_one(tmp_path: Path) -> None:
    problem = "must be none with --edge: leave out one of the two"
    for address in ("tcp://*:0", "tcp://*:4000"):
        with pytest.raises(SettingsError, match=f"^--listen {problem}"):
            Settings().with_flags({"edge": True, "listen": address})
        file = tmp_path / "run.toml"
        file.write_text(f'listen = "{address}"\n')
        with pytest.raises(SettingsError, match=f"line 1: listen {problem}"):
            Settings.read(file, {"edge": True})
        with pytest.raises(SettingsError, match=problem):
            Settings(edge=True, listen=address)
    with pytest.raises(SettingsError, match=problem):
        Settings(listen="tcp://*:0").changed(edge=True)
    assert Settings().with_flags({"edge": True}).changed(patience_s=9.0).listens_at == "none"
