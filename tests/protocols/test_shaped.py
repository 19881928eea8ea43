"""A real link that is shaped: in virtual time it is the simulated one, to the microsecond."""

import asyncio
import random
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conformance import ask, solve
from live import run_here

from samovar.peers.launch.session import open_endpoint
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link_spec import LinkSpec, link_bytes
from samovar.protocols.shaping import delay_queue
from samovar.protocols.shaping.path import ShapedTo
from samovar.protocols.shaping.shaped_transport import Shaped
from samovar.protocols.transport import Arrivals, Transport, wire_bytes
from samovar.protocols.wire.frames import encode
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport

AT_ONCE = LinkSpec(bandwidth_Bps=1e15, latency_s=0.0)
PAYLOAD = 10_000
Act = tuple[float, Callable[["Post"], object]]


def told(link: LinkSpec) -> bytes:
    said = ShapedTo(link.bandwidth_Bps, link.latency_s, link.jitter_s)
    return encode(said, 0, incarnation=0, towards=0, seq=0)


def seconds_of(size: int, rate: float) -> float:
    return link_bytes(wire_bytes(1, size, encrypted=True)) / rate


class Post:
    """Some peers, each on a link of its own or, None, on none, and what has arrived: (time, sender, receiver, header).
    Really simulated, or `by_shaping` a network that takes no time."""

    def __init__(self, links: Mapping[str, str | None], *, by_shaping: bool = True) -> None:
        specs = {name: AT_ONCE if link is None else parse_link(link) for name, link in links.items()}
        network = Network(AT_ONCE, 1)
        network.links = {} if by_shaping else specs
        self.arrived: list[tuple[float, str, str, bytes]] = []
        self.peers: dict[str, Transport] = {}
        self._by_shaping, self._specs, self._told = by_shaping, specs, set[tuple[str, str]]()
        for name, link in links.items():
            inner = SimulatedTransport(network, name)
            chance = random.Random(name)
            wrapped = by_shaping and link is not None
            self.peers[name] = Shaped(inner, specs[name], chance, encrypted=True) if wrapped else inner

    def open(self) -> None:
        for name, peer in self.peers.items():

            def frames(sender: str, header: bytes, payload: bytes, size: int, name: str = name) -> None:
                if len(header) == 1:
                    self.arrived.append((asyncio.get_running_loop().time(), sender, name, bytes(header)))

            peer.open(Arrivals(frames, lambda peer: None, lambda peer, why: None))
            for other in self.peers:
                peer.admit(other)

    def send(self, sender: str, to: str, header: bytes = b"x", size: int = PAYLOAD) -> int:
        """What a shaped peer says before its first word the simulated one says too, so that it takes its time."""
        if not self._by_shaping and (sender, to) not in self._told and self._specs[sender] is not AT_ONCE:
            self._told.add((sender, to))
            self.peers[sender].post(to, told(self._specs[sender]), b"")
        return self.peers[sender].post(to, header, bytes(size))

    def play(self, *acts: Act) -> "Post":
        async def main() -> None:
            self.open()
            for when, act in acts:
                asyncio.get_running_loop().call_at(when, act, self)
            await asyncio.sleep(1000)

        run_virtual(main())
        return self


def stream(sender: str, to: str, count: int = 5, at_s: float = 0.0) -> Act:
    return at_s, lambda post: [post.send(sender, to, bytes([n])) for n in range(count)]


def test_a_shaped_link_takes_the_time_its_bandwidth_says() -> None:
    post = Post({"a": "80kbit,500ms", "b": "80kbit,500ms"}).play((0.0, lambda post: post.send("a", "b")))
    before_s = link_bytes(wire_bytes(len(told(parse_link("80kbit,500ms"))), 0, encrypted=True)) / 10_000
    ((when, *rest),) = post.arrived
    assert rest == ["a", "b", b"x"]
    assert when == pytest.approx(before_s + seconds_of(PAYLOAD, 10_000) + 0.5, abs=1e-6)
    assert before_s < 0.02


ALIKE = dict.fromkeys("abcd", "10mbit,40ms")


@pytest.mark.parametrize(
    ("links", "acts"),
    [
        (ALIKE, [stream("a", "b")]),
        (ALIKE, [stream("a", "b"), stream("a", "c")]),
        (ALIKE, [stream("a", "d"), stream("b", "d", at_s=0.001), stream("c", "d", at_s=0.002)]),
        (ALIKE, [stream("a", "b"), stream("b", "a"), stream("b", "a", at_s=0.1)]),
        ({"a": "10mbit,40ms", "b": "5mbit,80ms"}, [stream("a", "b"), stream("b", "a")]),
        ({"a": "50mbit/10mbit,20ms", "b": "8mbit/50mbit,1ms"}, [stream("a", "b", 9), stream("b", "a", 9)]),
        ({"a": None, "b": "10mbit,40ms"}, [stream("b", "a"), stream("b", "a", at_s=1.0)]),
        ({"a": None, "b": "10mbit,40ms"}, [stream("a", "b"), stream("a", "b", at_s=1.0)]),
        (
            {"a": "1gbit,1ms", "b": "1gbit,1ms", "far": "1gbit,10s"},
            [
                stream("far", "b"),
                stream("b", "far", at_s=1.0),
                stream("a", "b", at_s=20.0),
                stream("far", "b", at_s=9.9),
            ],
        ),
    ],
)
def test_a_shaped_link_is_as_slow_and_as_far_as_the_simulated_one(links: dict[str, str], acts: list[Act]) -> None:
    real, simulated = (Post(links, by_shaping=by_shaping).play(*acts) for by_shaping in (True, False))
    assert len(real.arrived) >= 5
    for way in {(sender, to) for _, sender, to, _ in simulated.arrived}:
        mine, theirs = (
            [(what, when) for when, *to, what in post.arrived if (*to,) == way] for post in (real, simulated)
        )
        assert [what for what, _ in mine] == [what for what, _ in theirs]
        assert [when for _, when in mine] == pytest.approx([when for _, when in theirs], abs=1e-6), way


@pytest.mark.parametrize("theirs", ["1gbit,100ms,5s", "1gbit,0ms", None])
def test_jitter_makes_late_and_never_overtakes(theirs: str | None) -> None:
    acts = [stream("a", "b", 1, at_s=float(n)) for n in range(20)] + [stream("a", "b", 50, at_s=40.0)]
    post = Post({"a": theirs, "b": "1gbit,100ms,5s"}).play(*acts)
    late = [when - n for n, (when, *_) in enumerate(post.arrived[:20])]
    assert min(late) >= 0.1
    assert max(late) < 5.2
    assert max(late) - min(late) > 1
    assert [header[0] for *_, header in post.arrived[20:]] == list(range(50))


def test_the_queue_of_a_slow_link_is_bounded_and_dropped_frames_do_not_count_as_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delay_queue, "WAITING_BYTES_MAX", 50_000)
    sizes: list[int] = []
    post = Post({"a": "8kbit,0ms", "b": None})
    post.play((0.0, lambda post: sizes.extend(post.send("a", "b") for _ in range(9))))
    assert [size > 0 for size in sizes] == [True] * 4 + [False] * 5
    assert len(post.arrived) == 4


def test_frames_faster_than_the_link_are_dropped_when_too_much_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay_queue, "WAITING_BYTES_MAX", 50_000)
    post = Post({"a": None, "b": "8kbit,0ms"}).play(stream("a", "b", 9), stream("a", "b", 1, at_s=200.0))
    assert [header[0] for *_, header in post.arrived] == [0, 1, 2, 3, 0]


def test_frames_that_wait_for_a_hung_up_peer_never_go_out() -> None:
    """Its payload may be written to by then."""
    hang_up: Act = (0.1, lambda post: post.peers["a"].hang_up("b"))
    post = Post({"a": "80kbit,0ms", "b": None, "c": None})
    post.play(stream("a", "b"), stream("a", "c"), hang_up, stream("a", "b", 1, at_s=20.0))
    assert [to for *_, to, _ in post.arrived] == ["c"] * 5 + ["b"]


def test_a_closing_peer_still_sends_its_last_frames() -> None:
    """The others wait for its last acknowledgements."""
    close: Act = (0.01, lambda post: [post.peers["a"].close() for _ in range(2)])
    post = Post({"a": "800kbit,200ms", "b": None}).play(stream("a", "b"), close)
    assert [header[0] for *_, header in post.arrived] == [0, 1, 2]
    Post({"a": "800kbit,200ms"}).peers["a"].close()


def test_a_lie_about_the_own_link_delays_no_peer() -> None:
    lies = [ShapedTo(0.0, 0, 0), ShapedTo(-1.0, 0, 0), ShapedTo(1.0, -1e300, 0), ShapedTo(1e-300, 1e300, 1e300)]
    lie: Act = (
        0.0,
        lambda post: [
            post.peers["a"].post("b", encode(said, 0, incarnation=0, towards=0, seq=0), b"") for said in lies
        ],
    )
    post = Post({"a": None, "b": "10mbit,40ms", "c": "10mbit,40ms"})
    post.play(lie, stream("a", "b", 1, at_s=1.0), stream("c", "b", 1, at_s=2.0))
    assert [(round(when), sender) for when, sender, *_ in post.arrived] == [(1, "a"), (2, "c")]


def test_a_shaped_and_an_unshaped_peer_talk_and_find_nothing_wrong() -> None:
    async def main() -> None:
        network = Network(AT_ONCE, 1)
        near = SimulatedTransport(network, "near")
        link = parse_link("10mbit,40ms")
        far = Shaped(SimulatedTransport(network, "far"), link, random.Random(1), encrypted=True)
        a, b = (Endpoint(one, patience_s=4.0, rng=random.Random(one.id)) for one in (near, far))
        for one, other in ((a, b), (b, a)):
            await one.open()
            one.dial(other.id, other.address)
            solve(one)
        began = asyncio.get_running_loop().time()
        assert await ask(a, b, 1) == 2
        between = asyncio.get_running_loop().time()
        assert await ask(b, a, 1) == 2
        # To bind the two links takes another round trip.
        assert between - began == pytest.approx(0.16, abs=0.01)
        assert asyncio.get_running_loop().time() - between == pytest.approx(0.08, abs=0.01)
        assert (a.refused, b.refused) == ({}, {})
        assert a.round_trip_s("far") == pytest.approx(0.08, abs=0.01)
        await asyncio.sleep(0.1)
        assert (a.bytes_sent, b.bytes_sent) == (b.bytes_received, a.bytes_received)
        await asyncio.gather(a.close(), b.close())

    run_virtual(main())


def test_shaped_peers_share_no_memory_and_others_have_nothing_between_them_and_their_sockets() -> None:
    keys = KeyPair.new()
    as_it_is, far = (open_endpoint(Settings(link=link), keys.secret) for link in (None, "10mbit,40ms"))
    assert isinstance(as_it_is._transport, ZeroMQTransport)
    assert isinstance(far._transport, Shaped)
    assert far.machine == ""
    assert far.id == as_it_is.id == keys.public


def test_a_script_says_its_own_link_and_its_records_tell_it(tmp_path: Path) -> None:
    with run_here(tmp_path / "here", link="10mbit,1ms"), run_here(tmp_path / "near"):
        pass
    said = {name: read_run(tmp_path / name).events[0].why for name in ("here", "near")}
    assert said == {"here": "its connection is shaped to 10mbit,1ms", "near": ""}
