"""The virtual network: what a link costs, in what order things arrive, and what becomes of them when a way is cut."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from samovar.peers.settings.link_text import parse_duration, parse_link
from samovar.protocols.link_spec import LinkSpec, link_bytes
from samovar.protocols.transport import Arrivals, wire_bytes
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.machine import MACHINE, Machine
from samovar.sims.world.network import Network
from samovar.sims.world.transport import SimulatedTransport

PAYLOAD = 10_000
SIZE = link_bytes(wire_bytes(1, PAYLOAD, encrypted=True))


class Post:
    """Some peers on a network, and what has arrived: (time, sender, receiver, header)."""

    def __init__(self, *names: str, link: LinkSpec | None = None, seed: int = 1) -> None:
        self.network = Network(link or LinkSpec(bandwidth_Bps=SIZE, latency_s=0.5), seed)
        self.arrived: list[tuple[float, str, str, bytes]] = []
        self.transports = {name: SimulatedTransport(self.network, name) for name in names}
        for name in names:
            self.open(name)

    def open(self, name: str) -> None:
        def frames(sender: str, header: bytes, payload: bytes, size: int) -> None:
            assert size == wire_bytes(len(header), len(payload), encrypted=True)
            self.arrived.append((asyncio.get_running_loop().time(), sender, name, bytes(header)))

        self.transports[name].open(Arrivals(frames, lambda peer: None, lambda peer, why: None))
        for other in self.transports:
            self.transports[name].admit(other)

    def send(self, sender: str, to: str, header: bytes = b"x") -> int:
        return self.transports[sender].post(to, header, bytes(PAYLOAD))

    def times(self) -> list[float]:
        return [round(time, 6) for time, *_ in self.arrived]


def run(post: Post, *sendings: tuple[float, Callable[[], object]]) -> Post:
    async def main() -> None:
        for when, what in sendings:
            asyncio.get_running_loop().call_at(when, what)
        await asyncio.sleep(100)

    run_virtual(main())
    return post


def test_a_message_takes_its_size_over_the_bandwidth_and_the_latency() -> None:
    post = Post("a", "b")
    assert run(post, (0.0, lambda: post.send("a", "b"))).times() == [1.5]


def test_a_link_carries_the_headers_of_packets_too() -> None:
    assert [link_bytes(size) for size in (0, 1, 1448, 1449, 14_480)] == [0, 67, 1514, 1449 + 132, 15_140]


def test_messages_of_one_sender_queue_on_its_up_link() -> None:
    post = Post("a", "b", "c")
    run(post, (0.0, lambda: post.send("a", "b")), (0.0, lambda: post.send("a", "c")))
    assert post.times() == [1.5, 2.5]


def test_many_senders_share_the_receivers_down_link() -> None:
    post = Post("a", "b", "c")
    run(post, (0.0, lambda: post.send("a", "c")), (0.0, lambda: post.send("b", "c")))
    assert post.times() == [1.5, 2.5]


def test_the_down_link_is_taken_in_the_order_in_which_frames_come_to_it() -> None:
    post = Post("a", "b", "c", link=LinkSpec(bandwidth_Bps=1e9, latency_s=0.001))
    post.network.links["a"] = LinkSpec(bandwidth_Bps=1e9, latency_s=10.0)
    run(post, (0.0, lambda: post.send("a", "c")), (1.0, lambda: post.send("b", "c")))
    assert [(round(time, 3), sender) for time, sender, *_ in post.arrived] == [(1.001, "b"), (10.0, "a")]


def test_a_slow_sender_does_not_fill_a_fast_down_link() -> None:
    post = Post("a", "b", "c", link=LinkSpec(bandwidth_Bps=1000 * SIZE, latency_s=0.5))
    post.network.links["a"] = LinkSpec(bandwidth_Bps=SIZE / 10, latency_s=0.5)
    run(post, (0.0, lambda: post.send("a", "c")), (1.0, lambda: post.send("b", "c")))
    assert post.arrived[0][:2] == (pytest.approx(1.501), "b")
    assert post.arrived[1][:2] == (pytest.approx(10.5), "a")


@pytest.mark.parametrize(("up", "down"), [(1, 1), (1, 4), (4, 1)])
def test_a_stream_comes_as_fast_as_the_slower_of_the_two_links(up: float, down: float) -> None:
    post = Post("a", "b", link=LinkSpec(bandwidth_Bps=SIZE * up, down_Bps=SIZE * down, latency_s=0.5))
    run(post, *[(0.0, lambda: post.send("a", "b")) for _ in range(5)])
    slower = min(up, down)
    assert post.times() == pytest.approx([0.5 + (number + 1) / slower for number in range(5)])


def test_a_trunk_is_taken_by_the_first_sender() -> None:
    """What a still has to send before it keeps a's second message from the trunk, and so not b's."""
    post = Post("a", "b", "c", "d", link=LinkSpec(bandwidth_Bps=SIZE, latency_s=0.1))
    post.network.site |= {"c": "far", "d": "far"}
    post.network.trunks[frozenset(("", "far"))] = LinkSpec(bandwidth_Bps=SIZE, latency_s=1.0)
    sends = [("a", "b"), ("a", "b"), ("a", "c"), ("b", "d")]
    run(post, *[(0.001 * number, lambda way=way: post.send(*way)) for number, way in enumerate(sends)])
    between = [(round(time, 2), sender) for time, sender, to, _ in post.arrived if to in "cd"]
    assert between == [(2.1, "b"), (4.1, "a")]


def test_messages_that_wait_for_the_up_link_die_with_their_sender_and_the_next_life_begins_anew() -> None:
    post = Post("a", "b", "c")
    run(
        post,
        (0.0, lambda: [post.send("a", to, b"old") for to in "bcbcbc"]),
        (1.5, lambda: post.network.close("a")),
        (1.6, lambda: post.open("a")),
        (1.7, lambda: post.send("a", "b", b"new")),
    )
    assert [(round(time, 2), to, header) for time, _, to, header in post.arrived] == [
        (1.5, "b", b"old"),
        (2.5, "c", b"old"),
        (3.2, "b", b"new"),
    ]


def test_a_closing_peer_still_sends_the_bytes_in_its_socket() -> None:
    post = Post("a", "b", link=LinkSpec(bandwidth_Bps=10 * SIZE, latency_s=0.5))
    run(post, *[(0.0, lambda: post.send("a", "b")) for _ in range(9)], (0.05, post.transports["a"].close))
    assert post.times() == [0.6, 0.7, 0.8, 0.9]


def test_a_restarted_receiver_gets_nothing_of_the_old_one_and_does_not_wait_for_it() -> None:
    post = Post("a", "b", "c", link=LinkSpec(bandwidth_Bps=100 * SIZE, down_Bps=SIZE, latency_s=0.5))
    run(
        post,
        *[(0.0, lambda: post.send("a", "c", b"old")) for _ in range(9)],
        (3.0, lambda: post.network.close("c")),
        (3.1, lambda: post.open("c")),
        (3.2, lambda: post.send("b", "c", b"new")),
        (4.5, lambda: post.send("a", "c", b"new")),
    )
    assert [(round(time, 2), header) for time, *_, header in post.arrived] == [
        (1.5, b"old"),
        (2.5, b"old"),
        (4.7, b"new"),
        (6.0, b"new"),
    ]


def test_the_longest_clog_counts() -> None:
    post = Post("a", "b", link=LinkSpec(bandwidth_Bps=1e9, latency_s=0.001))
    post.network.clog("a", "b", 10.0)
    post.network.clog("a", "b", 1.0)
    assert run(post, (0.0, lambda: post.send("a", "b"))).times() == [10.0]


class Told:
    """The names of the machines that run when something arrives, and when."""

    def __init__(self, network: Network, name: str) -> None:
        self.heard: list[tuple[str, float, bytes]] = []
        self.network, self.name = network, name
        self.machine = Machine(name, asyncio.get_running_loop().again)  # type: ignore[attr-defined]

    def open(self, *known: str) -> None:
        def frames(sender: str, header: bytes, payload: bytes, size: int) -> None:
            machine = MACHINE.get()
            assert machine is not None
            self.heard.append((machine.name, round(asyncio.get_running_loop().time(), 3), bytes(header)))

        told = Arrivals(frames, lambda peer: None, lambda peer, why: None)
        self.machine.context.run(self.network.open, self.name, told)
        for other in known:
            self.network.doors.admit(self.name, other)

    def post(self, to: str, header: bytes) -> None:
        self.machine.context.run(self.network.carry, self.name, to, header, b"")


def two_machines(story: Callable[[Told, Told], Coroutine[Any, Any, None]]) -> list[tuple[str, float, bytes]]:
    """What is heard at b."""

    async def main() -> list[tuple[str, float, bytes]]:
        network = Network(LinkSpec(bandwidth_Bps=1e9, latency_s=0.1), 1)
        a, b = Told(network, "a"), Told(network, "b")
        a.open()
        await story(a, b)
        await asyncio.sleep(10)
        return b.heard

    return run_virtual(main())


def test_a_message_sent_before_its_receiver_was_there_is_handled_in_the_receivers_name() -> None:
    async def story(a: Told, b: Told) -> None:
        a.post("b", b"x")
        a.machine.crash()
        await asyncio.sleep(0.05)
        b.open("a")

    assert two_machines(story) == [("b", 0.1, b"x")]


def test_messages_to_a_suspended_machine_wait_and_keep_their_order() -> None:
    async def story(a: Told, b: Told) -> None:
        b.open("a")
        b.machine.pause()
        loop = asyncio.get_running_loop()
        for number in range(10):
            loop.call_at(0.1 * number, a.post, "b", bytes([number]))
        loop.call_at(0.8 + 7.7e-8, b.machine.resume)  # as one of them comes

    heard = two_machines(story)
    assert [header[0] for *_, header in heard] == list(range(10))
    assert [when for _, when, _ in heard] == [0.8] * 8 + [0.9, 1.0]


def test_both_directions_are_independent() -> None:
    post = Post("a", "b")
    run(post, (0.0, lambda: post.send("a", "b")), (0.0, lambda: post.send("b", "a")))
    assert post.times() == [1.5, 1.5]


def test_a_peer_may_have_a_link_of_its_own() -> None:
    post = Post("a", "b")
    post.network.links["b"] = LinkSpec(bandwidth_Bps=SIZE / 4, latency_s=2.0)
    run(post, (0.0, lambda: post.send("a", "b")), (20.0, lambda: post.send("b", "a")))
    assert post.times() == [6.0, 26.0]


def test_one_way_keeps_order_at_any_jitter() -> None:
    post = Post("a", "b", link=LinkSpec(bandwidth_Bps=1e9, latency_s=0.1, jitter_s=5.0))
    run(post, *[(0.01 * i, lambda i=i: post.send("a", "b", b"%03d" % i)) for i in range(100)])
    assert [header for *_, header in post.arrived] == [b"%03d" % i for i in range(100)]
    delays = [time - 0.01 * i for i, time in enumerate(post.times())]
    assert max(delays) - min(delays) > 1, "the jitter did happen"


def test_a_stranger_is_not_delivered() -> None:
    post = Post("a", "b")
    stranger = SimulatedTransport(post.network, "s")
    stranger.open(Arrivals(lambda *_: None, lambda *_: None, lambda *_: None))
    assert run(post, (0.0, lambda: stranger.post("a", b"x", b""))).arrived == []
    assert post.network.delivered == 0


def test_a_closed_peer_neither_sends_nor_receives_and_may_open_anew() -> None:
    post = Post("a", "b")
    run(
        post,
        (0.0, lambda: post.send("a", "b", b"under way")),
        (1.0, lambda: post.network.close("b")),
        (2.0, lambda: post.send("b", "a", b"from the dead")),
        (2.0, lambda: post.send("a", "b", b"to the dead")),
        (5.0, lambda: post.open("b")),
        (6.0, lambda: post.send("a", "b", b"to the new one")),
    )
    assert [header for *_, header in post.arrived] == [b"to the new one"]


def test_an_open_peer_cannot_be_opened_again() -> None:
    post = Post("a")
    with pytest.raises(OSError, match="a is open already"):
        post.open("a")


def test_a_cut_is_one_way_and_loses_messages_under_way() -> None:
    post = Post("a", "b")
    run(
        post,
        (0.0, lambda: post.send("a", "b", b"under way")),
        (1.0, lambda: post.network.cut("a", "b")),
        (2.0, lambda: post.send("a", "b", b"cut")),
        (2.0, lambda: post.send("b", "a", b"the other way")),
        (9.0, lambda: post.network.join("a", "b")),
        (9.5, lambda: post.send("a", "b", b"joined")),
    )
    assert [header for *_, header in post.arrived] == [b"the other way", b"joined"]
    assert post.network.happened["cut"] == 2


def test_a_fault_strikes_right_before_the_delivery_of_its_number_and_once() -> None:
    post, seen = Post("a", "b"), []
    post.network.before[3] = lambda: seen.append(len(post.arrived))
    run(post, *[(i, lambda: post.send("a", "b")) for i in range(5)])
    assert seen == [2]
    assert len(post.arrived) == post.network.delivered == 5


def test_equal_deliveries_have_equal_digests() -> None:
    def digest(seed: int = 1, jitter_s: float = 0.1, header: bytes = b"x", when: float = 0.0) -> str:
        post = Post("a", "b", link=LinkSpec(bandwidth_Bps=1e6, latency_s=0.1, jitter_s=jitter_s), seed=seed)
        return run(post, (when, lambda: post.send("a", "b", header))).network.digest

    assert digest() == digest()
    others = {digest(seed=2), digest(header=b"y"), digest(when=0.001), digest(jitter_s=0)}
    assert len({digest(), *others}) == 5


@pytest.mark.parametrize(
    ("text", "bandwidth_Bps", "latency_s", "jitter_s"),
    [
        ("10mbit,40ms", 1.25e6, 0.04, 0.0),
        ("1gbit,500us", 1.25e8, 0.0005, 0.0),
        ("100kbit,1s,0.5s", 12_500, 1.0, 0.5),
        ("8bit,0ms", 1.0, 0.0, 0.0),
        ("1.5tbit, 2.5ms, 1ms", 1.875e11, 0.0025, 0.001),
        (" 10MBit , 40ms ", 1.25e6, 0.04, 0.0),
    ],
)
def test_a_link_is_read(text: str, bandwidth_Bps: float, latency_s: float, jitter_s: float) -> None:
    link = parse_link(text)
    assert link.bandwidth_Bps == pytest.approx(bandwidth_Bps)
    assert (link.latency_s, link.jitter_s) == pytest.approx((latency_s, jitter_s))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is no link"),
        ("10mbit", "is no link: write BANDWIDTH,LATENCY"),
        ("10mbit,1ms,1ms,1ms", "is no link"),
        ("10,40ms", "'10' is not a bandwidth"),
        ("10mb,40ms", "'10mb' is not a bandwidth"),
        ("-1mbit,40ms", "'-1mbit' is not a bandwidth"),
        ("nanmbit,40ms", "is not a bandwidth"),
        ("1e3mbit,40ms", "is not a bandwidth"),
        ("0mbit,40ms", "carries nothing"),
        ("40ms,10mbit", "'40ms' is not a bandwidth"),
        ("10mbit,40", "'40' is not a duration"),
        ("10mbit,", "'' is not a duration"),
        ("10mbit,40ms,-1ms", "'-1ms' is not a duration"),
        ("10mbit,40 ms x", "is not a duration"),
    ],
)
def test_a_bad_link_is_refused_with_the_reason(text: str, said: str) -> None:
    with pytest.raises(ValueError, match="(?s)" + said):
        parse_link(text)


def test_a_duration_is_read_and_a_bad_one_refused() -> None:
    assert (parse_duration(" 5MS "), parse_duration("2s"), parse_duration("250us")) == (0.005, 2.0, 0.00025)
    for text in ("", "5", "5m", "-5ms", "5 ms", "ms", "infs"):
        with pytest.raises(ValueError, match="is not a duration"):
            parse_duration(text)
