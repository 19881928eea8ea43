"""Catch-up: a newcomer gets a donor's state to the last byte, whoever dies, lies or moves on meanwhile."""

import asyncio
import contextlib
import dataclasses
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from conformance import over
from simulated import complaints, endpoint_in, layout_of, no_complaints, simulate  # noqa: F401

from samovar.aggregation.periods.policy import PeriodState
from samovar.aggregation.vector import Layout
from samovar.peers.settings.link_text import parse_link
from samovar.protocols.channel import Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.link.dispatch import Handler
from samovar.protocols.local_sgd import catch_up
from samovar.protocols.local_sgd.catch_up import Wanted, fetch_state
from samovar.protocols.local_sgd.lag import Behind, Lag
from samovar.protocols.local_sgd.state import (
    State,
    expected,
    fingerprint,
    from_snapshot,
    state_fingerprint,
    to_snapshot,
)
from samovar.protocols.members.view import Version
from samovar.protocols.transfer import snapshot_transfer
from samovar.protocols.transfer.snapshot import Expected, Snapshot, bytes_max
from samovar.protocols.transfer.snapshot import pack as pack_snapshot
from samovar.protocols.transfer.snapshot import unpack as unpack_snapshot
from samovar.protocols.transfer.snapshot_transfer import (
    PART_BYTES,
    AskManifest,
    AskPart,
    CatchUpFailed,
    Donor,
    Manifest,
    part_bytes_of,
)
from samovar.protocols.transfer.snapshot_transfer import Part as PartMessage
from samovar.protocols.wire.frames import PeerMisbehaved, encode
from samovar.sims.world.network import Network

SIZE = 300_000
"""Elements: 19 parts."""


def state_of(round: int, size: int = SIZE, outer: int = 1) -> State:
    generator = torch.Generator().manual_seed(round)
    vectors = [torch.randn(size, generator=generator) for _ in range(1 + outer)]
    period = PeriodState(12, (1.0, float(round), 2.0, 0.5, 0.1, 0.1, 0.0))
    return State(round, 10 * round, vectors[0], tuple(vectors[1:]), period)


def pack(state: State) -> bytes:
    return pack_snapshot(to_snapshot(state))


def unpack(blob: bytes, layout: Layout, outer: int) -> State:
    return from_snapshot(unpack_snapshot(blob, expected(layout, outer)))


def replace_handler(donor: Endpoint, kind: type, handler: Handler) -> None:
    del donor.reception._handlers["test", kind]
    over(donor).on(kind, handler)


class Town:
    """Some donors d0, d1, ... and a newcomer; what the newcomer asks is counted."""

    def __init__(self, *states: State, link: str = "100mbit,10ms", layout: Layout | None = None) -> None:
        self.network = Network(parse_link(link), 1)
        self.layout = layout or layout_of(SIZE)
        self.states = list(states)
        self.newcomer = endpoint_in(self.network, "newcomer")
        self.donors = [endpoint_in(self.network, f"d{index}") for index in range(len(states))]
        self.asked: Counter[tuple[str, type]] = Counter()
        self.handlers = [
            Donor(over(donor), lambda i=i: to_snapshot(self.states[i])) for i, donor in enumerate(self.donors)
        ]
        for donor in self.donors:
            for kind in (AskManifest, AskPart):
                self.count(donor, kind)

    def count(self, donor: Endpoint, kind: type) -> None:
        handler = donor.reception._handlers.pop(("test", kind))

        def counted(envelope: Envelope) -> None:
            # A part's first piece stands for it.
            self.asked[donor.id, kind] += not getattr(envelope.message, "start", 0)
            handler(envelope)

        over(donor).on(kind, counted)

    def parts_of(self, donor: int) -> int:
        return self.asked[f"d{donor}", AskPart]

    async def asked_for(self, parts: int) -> None:
        """Return when the first donor has been asked for so many parts."""
        while self.parts_of(0) < parts:  # noqa: ASYNC110  # the world is watched from outside
            await asyncio.sleep(0.001)

    async def open(self) -> None:
        for endpoint in (self.newcomer, *self.donors):
            await endpoint.open()
        for donor in self.donors:
            donor.dial("newcomer", "sim://newcomer")
            self.newcomer.dial(donor.id, donor.address)

    async def fetch(self, *, round: int = 0, least: int = 0) -> State:
        donors, outer = [donor.id for donor in self.donors], len(self.states[0].outer)
        wanted = Wanted(Version(round, 0), least)
        return await fetch_state(over(self.newcomer), donors, self.layout, outer=outer, wanted=wanted)


def in_town(town: Town, visit: Callable[[], Awaitable[Any]] | None = None, **wanted: int) -> Any:
    async def main() -> Any:
        await town.open()
        try:
            return await (town.fetch(**wanted) if visit is None else visit())
        finally:
            for endpoint in (town.newcomer, *town.donors):
                endpoint.abort()

    return simulate(main())


def same(state: State, other: State) -> bool:
    return pack(state) == pack(other)


def test_a_joiner_gets_the_donors_bytes() -> None:
    town = Town(state_of(5))
    state = in_town(town)
    assert same(state, state_of(5))
    assert (state.round, state.step, state.period) == (5, 50, state_of(5).period)
    assert torch.equal(state.vector, state_of(5).vector)
    assert torch.equal(state.outer[0], state_of(5).outer[0])
    assert town.parts_of(0) == -(-len(pack(state)) // PART_BYTES) > 30


@pytest.mark.parametrize(("size", "outer"), [(1, 0), (16_000, 0), (16_384, 2), (16_385, 4)])
def test_any_size_comes_over_whole(size: int, outer: int) -> None:
    assert same(in_town(Town(state_of(3, size, outer), layout=layout_of(size))), state_of(3, size, outer))


def test_on_a_slow_link_parts_come_in_pieces_that_let_heartbeats_through() -> None:
    """A part at once would take 5.2 s of it, more than the patience."""
    town = Town(state_of(5, 40_000, 0), link="100kbit,20ms", layout=layout_of(40_000))
    lost = list[str]()
    town.newcomer.on_lost.append(lambda peer, why: lost.append(why))
    assert same(in_town(town), state_of(5, 40_000, 0))
    assert lost == []


@pytest.mark.parametrize("size", [1, 2 << 30, (2 << 30) + 1, 40 << 30, 1 << 40])
def test_the_hashes_of_a_state_of_any_size_fit_into_its_manifest(size: int) -> None:
    part_bytes = part_bytes_of(size)
    hashes = bytes(32 * -(-size // part_bytes))
    snapshot_transfer._check_sizes(Manifest(1, 1, size, part_bytes), hashes, size)
    encode(Manifest(1, 1, size, part_bytes), len(hashes), incarnation=1, towards=1, seq=1)


def test_a_donor_without_memory_for_the_bytes_sends_the_newcomer_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    town, usual = Town(state_of(5), state_of(5)), snapshot_transfer._offer

    def offer(snapshot: Snapshot) -> Any:
        monkeypatch.setattr(snapshot_transfer, "_offer", usual)
        raise MemoryError("no memory for the bytes of the state")

    monkeypatch.setattr(snapshot_transfer, "_offer", offer)
    assert same(in_town(town), state_of(5))
    assert town.parts_of(0) == 0
    assert complaints == [
        "the AskManifest of peer newcomer could not be dealt with: MemoryError('no memory for the bytes of the state')"
    ]
    complaints.clear()


def test_a_fetched_state_is_put_together_off_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, usual = list[int](), snapshot_transfer.off_loop

    async def counted(nbytes: int, work: Callable[[], Any]) -> Any:
        sizes.append(nbytes)
        return await usual(nbytes, work)

    monkeypatch.setattr(snapshot_transfer, "off_loop", counted)
    monkeypatch.setattr(catch_up, "off_loop", counted)
    whole = len(pack(state_of(5)))
    in_town(Town(state_of(5)))
    assert sizes == [to_snapshot(state_of(5)).nbytes, whole, whole], "packed, put together, unpacked"


def test_a_donor_that_dies_in_the_middle_is_replaced_and_its_parts_are_kept() -> None:
    town = Town(state_of(5), state_of(5))

    async def visit() -> State:
        fetching = asyncio.create_task(town.fetch())
        await town.asked_for(20)
        town.network.close("d0")
        return await fetching

    whole = -(-len(pack(state_of(5))) // PART_BYTES)
    assert same(in_town(town, visit), state_of(5))
    assert 0 < town.parts_of(1) <= whole - 20 + 8, "at most those asked for last are asked for again"
    assert town.parts_of(0) < whole, "it did die in the middle"


def test_a_part_with_a_wrong_hash_condemns_its_donor() -> None:
    town = Town(state_of(5), state_of(5))

    def lie(envelope: Envelope) -> None:
        question: AskPart = envelope.message
        town.asked["liar", AskPart] += 1
        answer = PartMessage(question.ask, question.version, question.index, question.start)
        town.lying.append(asyncio.ensure_future(over(town.donors[0]).send(envelope.sender, answer, bytes(PART_BYTES))))

    town.lying = []  # type: ignore[attr-defined]
    replace_handler(town.donors[0], AskPart, lie)
    assert same(in_town(town), state_of(5))
    assert 0 < town.asked["liar", AskPart] <= 16, "it is not asked on and on"
    assert town.parts_of(1) > 30


def test_a_donor_that_has_begun_anew_is_passed_over_and_the_parts_that_have_come_are_kept() -> None:
    """Its state is earlier than the one that the fetching peer wants at least: it would go back."""
    town, kept = Town(state_of(5), state_of(0), state_of(5)), dict[bytes, bytes]()

    async def visit() -> State:
        donors, wanted = [donor.id for donor in town.donors], Wanted(Version(5, 0), 5)
        fetching = fetch_state(over(town.newcomer), donors, town.layout, outer=1, wanted=wanted, kept=kept)
        task = asyncio.create_task(fetching)
        await town.asked_for(20)
        town.network.close("d0")
        return await task

    assert same(in_town(town, visit), state_of(5))
    assert town.asked["d1", AskManifest] == 1
    assert town.parts_of(1) == 0
    whole = -(-len(pack(state_of(5))) // PART_BYTES)
    assert 0 < town.parts_of(2) <= whole - 20 + 8


def test_when_all_donors_fail_each_is_told_with_its_reason() -> None:
    town = Town(state_of(5, 100), state_of(5))

    async def visit() -> None:
        town.network.close("d1")
        with pytest.raises(CatchUpFailed) as failed:
            await town.fetch()
        assert "d0: not a snapshot of this run" in str(failed.value)
        assert "d1: peer d1 is lost: not heard of for 4 s" in str(failed.value)

    in_town(town, visit)


def test_a_fetch_without_donors_says_so() -> None:
    async def visit() -> None:
        with pytest.raises(CatchUpFailed, match="there is no other peer"):
            await fetch_state(over(town.newcomer), [], town.layout, outer=1, wanted=Wanted(Version(1, 0), 0))

    town = Town()
    in_town(town, visit)


@pytest.mark.parametrize(
    ("manifest", "hashes", "said"),
    [
        (lambda ask: Manifest(ask, 1, 2**50, PART_BYTES), b"", "offers a snapshot of"),
        (lambda ask: Manifest(ask, 1, 10, 1), bytes(320), "offers a snapshot of"),
        (lambda ask: Manifest(ask, 1, 10, 2**30), bytes(32), "offers a snapshot of"),
        (lambda ask: Manifest(ask, 1, 2 * PART_BYTES, PART_BYTES), bytes(32), "another number of hashes"),
        (lambda ask: Manifest(ask, 1, 10, PART_BYTES), bytes(31), "another number of hashes"),
        (lambda ask: Manifest(ask, 1, 0, PART_BYTES), b"", "not a snapshot of this run"),
        (lambda ask: PartMessage(ask, 1, 0, 0), b"x", "answered a question with Part"),
    ],
)
def test_a_manifest_that_cannot_be_is_refused_before_anything_is_fetched(manifest, hashes: bytes, said: str) -> None:
    town = Town(state_of(1))

    def answer(envelope: Envelope) -> None:
        town.answering = asyncio.ensure_future(  # type: ignore[attr-defined]
            over(town.donors[0]).send(envelope.sender, manifest(envelope.message.ask), hashes)
        )

    async def visit() -> None:
        replace_handler(town.donors[0], AskManifest, answer)
        with pytest.raises(CatchUpFailed, match=said):
            await town.fetch()

    in_town(town, visit)
    assert town.parts_of(0) == 0


def test_a_slow_reader_finishes_the_round_it_began() -> None:
    """The donor goes on by a round, and another newcomer asks for that: the first still gets what it was promised."""
    town = Town(state_of(5), link="10mbit,10ms")

    async def visit() -> State:
        fetching = asyncio.create_task(town.fetch())
        await town.asked_for(10)
        town.states[0] = state_of(6)
        await over(town.newcomer).ask("d0", lambda ask: AskManifest(ask, 6), answers=(Manifest,))
        return await fetching

    assert in_town(town, visit).round == 5


def test_a_donor_that_moves_on_is_followed_to_its_later_round() -> None:
    town = Town(state_of(5), link="10mbit,10ms")

    async def visit() -> State:
        fetching = asyncio.create_task(town.fetch())
        await town.asked_for(10)
        town.handlers[0]._offers.clear()
        town.states[0] = state_of(8)
        return await fetching

    assert same(in_town(town, visit), state_of(8))
    assert town.asked["d0", AskManifest] == 2


def test_a_donor_keeps_two_rounds_at_most() -> None:
    town = Town(state_of(5))

    async def visit() -> None:
        for round in range(5, 10):
            town.states[0] = state_of(round)
            assert (
                await over(town.newcomer).ask("d0", lambda ask, r=round: AskManifest(ask, r), answers=(Manifest,))
            ).message.version == round
        assert list(town.handlers[0]._offers) == [8, 9]

    in_town(town, visit)


def test_a_donor_that_moves_on_for_ever_is_given_up() -> None:
    town = Town(state_of(5), state_of(5), link="10mbit,10ms")

    async def run_away() -> None:
        for round in range(6, 1000):
            town.states[0] = state_of(round)
            for old in list(town.handlers[0]._offers):
                del town.handlers[0]._offers[old]
            await asyncio.sleep(0.3)

    async def visit() -> State:
        running = asyncio.create_task(run_away())
        try:
            return await town.fetch()
        finally:
            running.cancel()

    assert same(in_town(town, visit), state_of(5))
    assert town.asked["d0", AskManifest] == 4


def test_a_donor_that_answers_too_many_sends_the_next_elsewhere(monkeypatch) -> None:
    monkeypatch.setattr(snapshot_transfer, "_ANSWERS_MAX", 0)
    town = Town(state_of(5))

    async def visit() -> None:
        with pytest.raises(CatchUpFailed, match="it is answering too many others"):
            await town.fetch()

    in_town(town, visit)


def test_a_state_is_the_same_after_packing_and_unpacking() -> None:
    for outer in range(5):
        state = state_of(2, 7, outer)
        blob = pack(state)
        assert len(blob) <= bytes_max(expected(layout_of(7), outer))
        again = unpack(blob, layout_of(7), outer)
        assert pack(again) == blob
        plain = [field.name for field in dataclasses.fields(State) if field.name not in ("vector", "outer")]
        assert [getattr(again, name) for name in plain] == [getattr(state, name) for name in plain]


def test_bytes_that_are_no_state_give_one_error_only() -> None:
    layout, rng = layout_of(5), random.Random(1)
    blob = pack(state_of(2, 5, 1))
    bad = [blob[:length] for length in range(len(blob))]
    bad += [blob + b"x", b"", b"\xff" * 100, bytes(100)]
    for _ in range(2000):
        mutant = bytearray(blob)
        for _ in range(rng.randint(1, 4)):
            mutant[rng.randrange(len(mutant))] = rng.randrange(256)
        bad.append(bytes(mutant))
    refused = 0
    for each in bad:
        try:
            state = unpack(each, layout, 1)
        except PeerMisbehaved:
            refused += 1
        else:
            assert torch.isfinite(state.vector).all()
            assert state.vector.shape == (5,)
    assert refused > len(blob) + 4, "all that are cut or too long, and more"


def test_a_snapshot_of_any_named_tensors_is_the_same_after_packing_and_unpacking() -> None:
    tensors = {"weights": torch.arange(5, dtype=torch.float64), "mask": torch.tensor([1, 0, 3], dtype=torch.int8)}
    like = {name: Expected(tensor.dtype, len(tensor)) for name, tensor in tensors.items()}
    blob = pack_snapshot(Snapshot(7, tensors, ["clock", 3]))
    assert len(blob) <= bytes_max(like)
    again = unpack_snapshot(blob, like)
    assert (again.version, again.extra) == (7, ["clock", 3])
    assert all(torch.equal(again.tensors[name], tensor) for name, tensor in tensors.items())
    assert again.nbytes == 5 * 8 + 3
    for other in ({}, {"weights": like["weights"]}, dict(reversed(like.items()))):
        with pytest.raises(PeerMisbehaved, match="other tensors"):
            unpack_snapshot(blob, other)
    with pytest.raises(ValueError, match="header of a snapshot"):
        pack_snapshot(Snapshot(7, tensors, ["x" * 5000]))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
def test_a_state_that_is_not_finite_is_refused(poison: float) -> None:
    for where in (0, 1):
        state = state_of(2, 5, 1)
        (state.vector, *state.outer)[where][3] = poison
        with pytest.raises(PeerMisbehaved, match="not finite"):
            unpack(pack(state), layout_of(5), 1)


def test_a_fingerprint_differs_when_any_bit_does() -> None:
    for size in (1, 2, 127, 128, 129, 500):
        vector = state_of(1, size, 0).vector
        seen = {fingerprint(vector)}
        raw = bytearray(vector.numpy().tobytes())
        bits = range(8 * len(raw)) if size <= 129 else range(0, 8 * len(raw), 13)
        for bit in bits:
            raw[bit // 8] ^= 1 << bit % 8
            seen.add(fingerprint(torch.frombuffer(bytearray(raw), dtype=torch.float32)))
            raw[bit // 8] ^= 1 << bit % 8
        assert len(seen) == len(bits) + 1
        assert all(0 <= print_ < 2**63 for print_ in seen)


def test_a_fingerprint_differs_when_elements_change_places() -> None:
    vector = state_of(1, 1000, 0).vector
    swapped = vector.clone()
    swapped[[1, 500]] = vector[[500, 1]]
    assert fingerprint(swapped) != fingerprint(vector) == fingerprint(vector.clone())


def test_a_newcomer_that_fetches_the_state_again_as_the_others_go_on_is_refused_nothing() -> None:
    """However large the pieces that the way suits: no piece is more than a part."""
    town = Town(state_of(1), link="10gbit,1ms")

    async def visit() -> None:
        for round in range(1, 41):
            town.states[0] = state_of(round)
            assert (await town.fetch()).round == round
        assert town.donors[0].refused == {}

    in_town(town, visit)


def test_an_asker_for_the_state_is_told_when_it_asks_too_often() -> None:
    """And does not wait for an answer that never comes."""
    town = Town(state_of(1, size=10), link="10gbit,1ms", layout=layout_of(10))

    async def visit() -> None:
        for _ in range(200):
            await town.fetch()

    with pytest.raises(CatchUpFailed, match="asked for the state over and over"):
        in_town(town, visit)


def test_a_member_takes_the_state_that_all_go_on_from_and_no_later_one() -> None:
    """A donor that is ahead has what the others may never commit."""
    town, adopted = Town(state_of(6), state_of(5)), list[State]()

    @contextlib.asynccontextmanager
    async def only_while(condition: Callable[[], bool]) -> AsyncIterator[None]:
        assert condition()
        yield

    view = SimpleNamespace(ids=("d0", "d1"), are_apart=lambda one, other: False)
    membership: Any = SimpleNamespace(view=view, only_while=only_while, settled=True)

    async def visit() -> None:
        lag = Lag(over(town.newcomer), membership, town.layout, 1, adopted.append, lambda: Version(0, 0))
        lag.behind = Behind(Version(5, state_fingerprint(state_of(5))), ("d0", "d1"))
        await lag.catch_up()

    in_town(town, visit)
    assert [state.round for state in adopted] == [5]
    assert same(adopted[0], state_of(5))
