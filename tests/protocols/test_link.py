"""Links between incarnations: who may speak for a peer, what becomes of old frames, and how much is under way."""

import asyncio
from collections.abc import Callable

import pytest
from conformance import Parcel, Postcard

from samovar.protocols.link.congestion import (
    CHUNK_BYTES_MAX,
    CHUNK_BYTES_MIN,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_MIN,
    WINDOW_BYTES_START,
    Pace,
    Rate,
    suiting_chunk,
)
from samovar.protocols.link.flow import Flow
from samovar.protocols.link.handshake import Binding
from samovar.protocols.link.lane import Outbound, Packet, Pulse
from samovar.protocols.link.link import CONTROL_QUEUE_MAX, Link, PeerLost
from samovar.protocols.link.outbox import Outbox
from samovar.protocols.wire import frames as wire
from samovar.protocols.wire.frames import Buffer, Frame, Lane, Packed, PeerMisbehaved


class Side:
    """One end of a link, and the transport that it posts to: frames go to a list and are handed over by the test."""

    def __init__(self, name: str, incarnation: int, clock: Callable[[], float]) -> None:
        self.frames: list[tuple[bytes, Buffer]] = []
        self.delivered: list[object] = []
        self.link = Link(
            name,
            incarnation,
            clock=clock,
            outbox=Outbox(self),
            flow=Flow(lambda: 256),  # so many links share it: 1 MiB for each
            pace=Pace(patience_s=8.0),
        )

    def post(self, peer: str, header: bytes, payload: Buffer) -> int:
        self.frames.append((header, payload))
        return len(header) + len(payload)

    def take(self, frames: list[tuple[bytes, Buffer]]) -> None:
        for header, payload in frames:
            self.hear(wire.decode(header, len(payload)), payload, len(header) + len(payload) + 256)

    def hear(self, frame: Frame, payload: Buffer, cost: int) -> None:
        self.delivered += [arrival.message for arrival in self.link.arrived(frame, payload, cost)]

    def sent(self) -> list[tuple[bytes, Buffer]]:
        sent, self.frames = self.frames, []
        return sent


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def settle(*sides: Side) -> int:
    """Hand frames over between two until nobody says anything more; returns how many there were."""
    a, b, count = *sides, 0
    while a.frames or b.frames:
        for here, there in ((a, b), (b, a)):
            frames = here.sent()
            count += len(frames)
            there.take(frames)
        assert count < 100, "they talk for ever"
    return count


def bound() -> tuple[Side, Side]:
    a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
    a.link.pulse(ping=True)
    settle(a, b)
    assert (a.link.towards, b.link.towards) == (b.link.incarnation, a.link.incarnation)
    return a, b


def test_two_links_bind_within_few_frames_in_any_order_of_speaking() -> None:
    for speakers in ("a", "b", "ab"):
        a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
        a.link.post("test", Postcard(1))
        b.link.post("test", Postcard(2))
        for name, side in (("a", a), ("b", b)):
            if name in speakers:
                side.link.pulse(ping=True)
        assert settle(a, b) <= 10
        assert (a.delivered, b.delivered) == ([Postcard(2)], [Postcard(1)])
        assert a.link.retransmitted == b.link.retransmitted == 0


def test_old_frames_of_a_restarted_peer_do_not_end_its_new_link_nor_reach_anybody() -> None:
    a, b = bound()
    a.link.post("test", Postcard(1))
    a.link.pulse(ping=True)
    old = a.frames.copy()
    settle(a, b)
    again, fresh = Side("b", 3 << 40, Clock()), Side("a", 4 << 40, Clock())
    again.link.pulse(ping=True)
    with pytest.raises(PeerLost, match="restarted"):
        settle(again, b)
    settle(again, fresh)
    again.link.post("test", Postcard(2))
    settle(again, fresh)
    fresh.take(old)
    again.take(fresh.sent())  # what `fresh` asks the past self is heard by the one that lives
    again.link.post("test", Postcard(3))
    settle(again, fresh)
    assert fresh.delivered == [Postcard(2), Postcard(3)]
    assert fresh.link.lost is again.link.lost is None


def test_an_old_proof_does_not_bind() -> None:
    a, b = Side("b", 1 << 40, Clock()), Side("a", 2 << 40, Clock())
    b.link.pulse(ping=True)
    a.take(b.sent())
    proof = a.sent()  # a's pong to b's ping, which b will hear only after a has restarted
    again = Side("b", 3 << 40, Clock())
    again.link.pulse(ping=True)
    settle(again, b)
    assert b.link.towards == again.link.incarnation
    b.take(proof)
    settle(again, b)
    assert b.link.towards == again.link.incarnation
    assert b.link.lost is None


def test_a_pong_to_another_link_of_ours_proves_nothing() -> None:
    b = Side("a", 2 << 40, Clock())
    b.link.pulse(ping=True)
    for pong in (0, 1, 2 << 40, (2 << 40) + 1000, 2**63 - 1):
        b.hear(Frame(7, 0, Lane.LINK, 0, Pulse(0, pong, 0.0)), b"", 0)
        assert b.link.towards == 0
    b.hear(Frame(7, 0, Lane.LINK, 0, Pulse(0, (2 << 40) + 1, 0.0)), b"", 0)
    assert b.link.towards == 7


def test_a_message_from_an_incarnation_that_proved_nothing_is_not_delivered() -> None:
    a, b = bound()
    for incarnation in (9, a.link.incarnation + 1):
        b.hear(Frame(incarnation, b.link.incarnation, Lane.CONTROL, 0, Postcard(1)), b"", 300)
    for towards in (0, b.link.incarnation + 1):
        b.hear(Frame(a.link.incarnation, towards, Lane.CONTROL, 0, Postcard(1)), b"", 300)
    assert b.delivered == []
    with pytest.raises(PeerMisbehaved):
        b.hear(Frame(0, b.link.incarnation, Lane.CONTROL, 0, Postcard(1)), b"", 300)


def test_a_link_bound_to_a_former_life_is_ended() -> None:
    _, b = bound()
    again = Side("b", 3 << 40, Clock())
    again.link.pulse(ping=True)
    with pytest.raises(PeerLost):
        settle(again, b)
    assert again.link.towards == 0  # `b` was bound to another: not to this one, though it was proved to live
    fresh = Side("a", 4 << 40, Clock())
    fresh.link.pulse(ping=True)
    settle(again, fresh)
    assert (again.link.towards, fresh.link.towards) == (fresh.link.incarnation, again.link.incarnation)


def test_only_frames_that_a_pong_reports_missing_are_sent_again() -> None:
    a, b = bound()
    for n in range(3):
        a.link.post("test", Postcard(n))
    frames = a.sent()
    b.take([frames[0], frames[2]])
    a.link.pulse(ping=True)
    a.link.post("test", Postcard(3))  # after the ping: its pong says nothing of this one
    settle(a, b)
    assert b.delivered == [Postcard(n) for n in range(4)]
    assert a.link.retransmitted == 1 + 1  # the lost one, and the one that had come early: it was not yet in order
    assert not a.link.busy


def test_frames_that_break_the_rules_are_told_as_misbehaviour() -> None:
    a, b = bound()
    here, there = b.link.incarnation, a.link.incarnation

    def pulse(*counts: int) -> Frame:
        return Frame(there, here, Lane.LINK, 0, Pulse(0, 0, 0.0), "", counts)

    for counts in ((1, 0, 0, 0), (0, 1, 0, 0), (0, 2**63 - 1, 0, 0)):
        for hostile in (pulse(*counts), Frame(there, here, Lane.CONTROL, 0, Postcard(1), "", counts)):
            with pytest.raises(PeerMisbehaved, match="acknowledged what was never sent"):
                b.hear(hostile, b"", 0)
    for seq in range(3):
        b.hear(Frame(there, here, Lane.DATA, 1000 + seq, Parcel(seq)), bytes(1 << 20), 1 << 20)
    with pytest.raises(PeerMisbehaved, match="beyond its credit"):
        b.hear(Frame(there, here, Lane.DATA, 2000, Parcel(9)), bytes(1 << 20), 1 << 20)
    assert b.delivered == []
    b.hear(pulse(0, 0, 0, 0), b"", 0)  # a credit of 0 takes nothing back
    b.link.post("test", Postcard(1))
    assert len(b.frames) > 0


def test_a_receiver_that_takes_nothing_is_given_up_when_too_much_waits() -> None:
    side = Side("b", 1 << 40, Clock())
    for n in range(CONTROL_QUEUE_MAX):
        side.link.post("test", Postcard(n))
    with pytest.raises(PeerLost, match="too long"):
        side.link.post("test", Postcard(0))
    assert not side.link.busy


def test_a_window_follows_the_rate_of_the_way_and_one_lucky_sample_does_not_flood_it() -> None:
    pace = Pace(patience_s=8.0)
    assert pace.window_bytes == WINDOW_BYTES_START
    pace.measured(Rate(WINDOW_BYTES_START / 2, False))
    assert pace.bandwidth_Bps is None, "less than could have been says nothing"
    pace.measured(Rate(125_000, True))
    assert (pace.window_bytes, pace.chunk_bytes) == (2 * WINDOW_BYTES_START, WINDOW_BYTES_START // 4)
    pace.measured(Rate(1e9, True))
    assert pace.window_bytes == 4 * WINDOW_BYTES_START
    for _ in range(10):
        pace.measured(Rate(1e9, True))
    assert (pace.window_bytes, pace.chunk_bytes) == (WINDOW_BYTES_MAX, CHUNK_BYTES_MAX)
    for _ in range(60):
        pace.measured(Rate(1.0, True))
    assert (pace.window_bytes, pace.chunk_bytes) == (WINDOW_BYTES_MIN, CHUNK_BYTES_MIN)
    pace.broke()
    assert (pace.window_bytes, pace.bandwidth_Bps) == (WINDOW_BYTES_MIN, None)
    before = pace.window_bytes
    pace.measured(Rate(0.5, False))
    assert pace.window_bytes == before


def test_while_acknowledgements_wait_on_their_own_way_more_may_be_under_way_on_the_other() -> None:
    pace = Pace(patience_s=12.0)
    windows = []
    for waited_s in (0.0, 0.2, 30.0, 0.0):
        for _ in range(8):
            pace.measured(Rate(1e6, True), round_trip_s=0.1, waited_s=waited_s)
        windows.append(pace.window_bytes)
    assert windows == pytest.approx([8e5, 1e6, 1.15e6, 8e5], abs=2), "half as much again at most, whatever clocks say"


def test_the_wait_of_a_pulse_is_its_time_beyond_the_shortest_though_clocks_differ() -> None:
    binding = Binding(1 << 40)
    assert binding.waited_s(1000.0, now=5.0) == 0.0
    assert binding.waited_s(1001.0, now=6.3) == pytest.approx(0.3)
    assert binding.waited_s(1001.9, now=6.8) == 0.0, "shorter than any before"
    assert binding.waited_s(1002.0, now=7.3) == pytest.approx(0.4)
    binding.waited_s(1003.0, now=40.0)
    assert binding.waited_s(1050.0, now=87.0) == pytest.approx(0.0), "the other clock stood still"


def test_after_a_lucky_rate_a_window_grows_no_more_until_later_messages_arrive() -> None:
    pace, now = Pace(patience_s=12.0), 0.0
    for _ in range(20):
        pace.measured(Rate(1e5, True, posted_at=now), now=(now := now + 1.0))
    before = pace.window_bytes
    pace.measured(Rate(1e7, True, posted_at=now), now=now + 0.01)
    assert pace.window_bytes == 2 * before
    for _ in range(3):
        for _ in range(7):
            pace.measured(Rate(1e5, True, posted_at=now), now=now + 0.5)
            assert pace.window_bytes == 2 * before
        now += 1.0
    pace.measured(Rate(1e5, True, posted_at=now), now=now + 0.5)
    assert pace.window_bytes == before, "after three round trips it is forgotten"


def test_a_way_that_becomes_much_slower_is_found_out_before_three_full_windows_have_passed() -> None:
    """Each of those takes as long then as the window is too large."""
    pace, now = Pace(patience_s=12.0), 0.0
    for _ in range(30):
        pace.measured(Rate(1e7, True, posted_at=now), round_trip_s=0.01, now=(now := now + 0.1))
    full, posted_at = pace.window_bytes, now
    while pace.window_bytes == full and now - posted_at < full / 1e6 / 2:
        now += 0.1
        pace.measured(Rate(1e6, True, posted_at=posted_at), now=now)  # posted before the first of it was there
    assert pace.window_bytes < full


def test_a_way_on_which_a_link_was_lost_is_learned_anew() -> None:
    pace = Pace(patience_s=8.0)
    for _ in range(10):
        pace.measured(Rate(1e9, True))
    assert pace.window_bytes == WINDOW_BYTES_MAX
    pace.broke()
    assert (pace.window_bytes, pace.bandwidth_Bps) == (WINDOW_BYTES_START, None)
    pace.measured(Rate(1e9, True))
    assert pace.window_bytes == 2 * WINDOW_BYTES_START


def test_acknowledgements_that_have_waited_do_not_make_a_way_look_slower() -> None:
    pace, now = Pace(patience_s=8.0), 0.0
    for round_trip in range(6):
        slower = round_trip > 2
        for _ in range(20):
            pace.measured(Rate(3e4 if slower else 1e5, True, posted_at=now), now=now + 0.1)
            if round_trip < 5:
                assert pace.bandwidth_Bps == 1e5
        now += 0.2
    assert pace.bandwidth_Bps == 3e4, "after three round trips it is slower"


def test_a_burst_after_a_pause_does_not_make_a_long_way_look_slower() -> None:
    """Of such a burst the acknowledgements come one close upon the other, a round trip later: the first of them tells
    of an eighth of the window in that time."""
    pace, now, windows = Pace(patience_s=100.0), 0.0, []
    for _ in range(8):
        burst = pace.window_bytes
        for eighths in range(1, 9):
            rate = Rate(burst * eighths / 8 / 2.0, True, posted_at=now)
            pace.measured(rate, round_trip_s=2.0, now=now + 2.0 + eighths / 1e3)
        windows.append(pace.window_bytes)
        now += 10.0
    assert windows == sorted(windows), "it never falls"
    assert windows[-1] > 20 * WINDOW_BYTES_START


def test_a_chunk_is_a_small_part_of_the_waiting_bytes_within_its_bounds() -> None:
    assert suiting_chunk(512 * 1024, 1e6) == 32 * 1024, "a sixteenth"
    assert suiting_chunk(8 << 20, 1e9) == CHUNK_BYTES_MAX, "8 ms, at most what a message holds"
    assert suiting_chunk(64 * 1024, 1e5) == 8 * 1024, "8 KiB"
    assert suiting_chunk(16 * 1024, 1e9) == 4 * 1024, "a quarter"
    assert suiting_chunk(0, 0.0) == CHUNK_BYTES_MIN


def test_acknowledgements_that_come_in_bunches_do_not_make_a_way_look_faster() -> None:
    out, rates_Bps = Outbound(limit_bytes=1 << 20), []
    for second in range(24):  # the way takes one a second, and every other word of it waits behind other data
        if second % 4 in (2, 3):
            arrived = second if second % 4 == 3 else second - 2
            rates_Bps.append(out.acknowledge(arrived, 1 << 20, float(second)))
        out.queue.append(Packet(Packed(Lane.DATA, 0, b"", ""), bytes(1000)))
        assert out.sendable(1 << 20, float(second), lambda packed, seq: b"header") is not None
        assert out.sendable(1 << 20, float(second), lambda packed, seq: b"header") is None
    cost = out.posted_bytes / 24
    told = [rate.Bps / cost for rate in rates_Bps if rate is not None]
    assert len(told) > 6
    assert max(told) <= 1.0


def kinds_of(frames: list[tuple[bytes, Buffer]]) -> list[str]:
    return [type(wire.decode(header, len(payload)).message).__name__ for header, payload in frames]


def test_questions_and_answers_acknowledge_each_other_without_a_frame_of_their_own() -> None:
    a, b = bound()
    for n in range(2000):
        for here, there in ((a, b), (b, a)):
            here.link.offer("test", Parcel(n), bytes(1000))
            frames = here.sent()
            assert kinds_of(frames) == ["Parcel"]
            there.take(frames)
            there.link.consumed(sum(len(header) + len(payload) + 256 for header, payload in frames))
    assert len(a.delivered) == len(b.delivered) == 2000, "more than twice the credit that each began with"
    assert not a.link.busy, "the last answer has acknowledged the last question"
    assert b.link.busy


def test_a_message_that_waits_for_credit_holds_back_no_credit_of_its_own() -> None:
    """Two sides that wait for each other's credit would do so until the next heartbeat."""
    out, sealed = Outbound(), list[int]()

    def seal(packed: Packed, seq: int) -> bytes:
        sealed.append(seq)
        return b"header"

    out.queue.append(Packet(Packed(Lane.DATA, 0, b"", ""), bytes(1000)))
    assert out.sendable(1 << 20, 0.0, seal) is None
    assert sealed == [], "its counts would be those of now, and count as told"
    out.granted(1)
    assert out.sendable(1 << 20, 0.0, seal) is not None
    assert sealed == [0]


def test_while_messages_wait_only_pulses_acknowledge() -> None:
    """A message has waited behind others for a time that nobody tells: by its acknowledgement the path looks slower."""
    out = Outbound(limit_bytes=1 << 20)
    for _ in range(2):
        out.queue.append(Packet(Packed(Lane.DATA, 0, b"", ""), bytes(1000)))
    assert out.sendable(1, 0.0, lambda packed, seq: b"header") is not None
    assert out.sendable(1, 0.0, lambda packed, seq: b"header") is None, "the window is full"
    assert out.acknowledge(1, 2 << 20, 1.0, by_message=True) is None
    assert (len(out.in_flight), out.limit_bytes) == (1, 2 << 20), "credit is taken"
    assert out.acknowledge(1, 0, 2.0) is not None
    assert not out.in_flight


def test_a_lost_message_takes_no_acknowledgement_and_no_credit_with_it() -> None:
    a, b = bound()
    a.link.offer("test", Parcel(0), bytes(1000))
    b.take(a.sent())
    b.link.post("test", Postcard(1))  # it acknowledges the parcel
    b.sent()  # and is lost
    assert a.link.busy
    a.link.pulse(ping=True)
    settle(a, b)
    b.link.pulse(ping=True)
    settle(a, b)
    assert not a.link.busy
    assert not b.link.busy
    assert a.delivered == [Postcard(1)]


def test_a_message_that_acknowledges_measures_no_bandwidth() -> None:
    """It comes when its sender has something to say, which may be long after what it acknowledges."""

    async def measured(*, by_message: bool) -> float | None:
        clock = Clock()
        a, b = Side("b", 1 << 40, clock), Side("a", 2 << 40, clock)
        a.link.pulse(ping=True)
        settle(a, b)
        for number in range(4):
            a.link.offer("test", Parcel(number), bytes(1000))
            clock.now += 1e-4
            b.take(a.sent())
            if by_message:
                b.link.post("test", Postcard(1))
            else:
                a.link.pulse(ping=True)
                b.take(a.sent())
            clock.now += 1e-4
            a.take(b.sent())
            assert not a.link.busy
        return a.link._pace.bandwidth_Bps

    assert asyncio.run(measured(by_message=True)) is None
    assert asyncio.run(measured(by_message=False)) is not None


async def test_a_link_on_which_messages_always_acknowledge_first_is_measured_all_the_same() -> None:
    """Else its window and chunks stay as small as they begin: 1 MiB to a server and back took six times as long."""
    clock = Clock()
    a, b = Side("b", 1 << 40, clock), Side("a", 2 << 40, clock)
    a.link.pulse(ping=True)
    settle(a, b)
    began = a.link._pace.window_bytes
    for number in range(30):
        a.link.offer("test", Parcel(number), bytes(8000))
        await asyncio.sleep(0)
        clock.now += 1e-4
        parcel, *ping = a.sent()
        b.take([parcel])
        b.link.post("test", Postcard(1))
        b.take(ping)
        clock.now += 0.03
        a.take(b.sent())
        assert not a.link.busy
    assert a.link._pace.bandwidth_Bps is not None
    assert a.link._pace.window_bytes > 2 * began


def test_a_withdrawn_message_takes_no_acknowledgement_and_no_credit_with_it() -> None:
    async def scene() -> None:
        a, b = bound()
        b.link.offer("test", Parcel(0), bytes(1000))
        of_b = b.sent()
        while (posted := a.link.offer("test", Parcel(1), bytes(4000))) is None:
            pass
        posted.cancel()  # a ping is under way: no other is due now
        await asyncio.sleep(0)
        a.sent()
        a.take(of_b)
        posted = a.link.offer("test", Parcel(2), bytes(4000))
        assert posted is not None
        assert a.sent() == [], "it waits for the window"
        posted.cancel()
        await asyncio.sleep(0)
        b.take(a.sent())
        assert not b.link.busy

    asyncio.run(scene())
