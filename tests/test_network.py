"""The virtual network: what a link costs, in what order things arrive, and what becomes of them when a way is cut."""

import asyncio
from collections.abc import Callable

import pytest

from samovar.protocols.transport import Arrivals, wire_bytes
from samovar.sims.links import LinkSpec, link_bytes, parse_duration, parse_link
from samovar.sims.loop import run_virtual
from samovar.sims.network import Network, SimulatedTransport

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


def test_both_directions_are_independent() -> None:
    post = Post("a", "b")
    run(post, (0.0, lambda: post.send("a", "b")), (0.0, lambda: post.send("b", "a")))
    assert post.times() == [1.5, 1.5]


def test_a_peer_may_have_a_link_of_its_own() -> None:
    post = Post("a", "b")
    post.network.links["b"] = LinkSpec(bandwidth_Bps=SIZE / 4, latency_s=2.0)
    run(post, (0.0, lambda: post.send("a", "b")), (20.0, lambda: post.send("b", "a")))
    assert post.times() == [6.0, 26.0]


def test_one_way_keeps_order_whatever_the_jitter() -> None:
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


def test_a_cut_is_one_way_and_loses_what_is_under_way() -> None:
    post = Post("a", "b")
    run(
        post,
        (0.0, lambda: post.send("a", "b", b"under way")),
        (1.0, lambda: post.network.cut("a", "b")),
        (2.0, lambda: post.send("a", "b", b"cut")),
        (2.0, lambda: post.send("b", "a", b"the other way")),
        (9.0, post.network.heal),
        (9.5, lambda: post.send("a", "b", b"healed")),
    )
    assert [header for *_, header in post.arrived] == [b"the other way", b"healed"]
    assert post.network.happened["cut"] == 2


def test_a_partition_cuts_all_ways_between_its_sides_and_none_within() -> None:
    post = Post("a", "b", "c", "d")
    post.network.partition(["a", "b"], ["c"], ["d"])
    pairs = [(sender, to) for sender in "abcd" for to in "abcd" if sender != to]
    run(post, *[(0.0, lambda pair=pair: post.send(*pair)) for pair in pairs])
    assert {(sender, to) for _, sender, to, _ in post.arrived} == {("a", "b"), ("b", "a")}
    assert post.network.happened["cut"] == len(pairs) - 2


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
