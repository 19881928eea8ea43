"""The wire: every message comes back as it went, and hostile bytes give one error, never another."""

import dataclasses
import importlib
import math
import pkgutil
import random
import string
import struct
import tracemalloc
import types
import typing
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiers import soaked

import samovar.protocols
from samovar.protocols.link.lane import Pulse
from samovar.protocols.transfer.chunks import Chunk
from samovar.protocols.wire import frames as wire
from samovar.protocols.wire.frames import (
    HEADER_BYTES_MAX,
    PAYLOAD_BYTES_MAX,
    Frame,
    Lane,
    OtherVersion,
    PeerMisbehaved,
    decode,
    encode,
    message,
)
from samovar.protocols.wire.schema import INT_MAX, ITEMS_MAX, STR_BYTES_MAX

for module in pkgutil.walk_packages(samovar.protocols.__path__, "samovar.protocols."):
    importlib.import_module(module.name)


@dataclass(frozen=True, slots=True)
class Inner:
    flag: bool
    name: str


@message("test", lane=Lane.DATA, payload_max=1000)
@dataclass(frozen=True, slots=True)
class Specimen:
    """One field of every type that there is."""

    number: int
    real: float
    blob: bytes
    inner: Inner
    maybe: Inner | None
    many: tuple[Inner, ...]
    numbers: tuple[int, ...]


SPECIMEN = Specimen(
    2**63 - 1, -0.5, b"\x00\xff", Inner(True, "é"), None, (Inner(False, ""), Inner(True, "x")), (0, 300)
)
KINDS = sorted(wire._by_name)
MULTIPLE = 10
"""Decoding allocates at most this many times the bytes that a header may have."""

GOLDEN = [
    (
        b"\x9e\x16\xcd\x03\xe8\xcd\x07\xd0\x00\x00\x05\xcd\x01\x2c\xce\x00\x08\x00\x00"
        b"\xcf\x00\x00\x00\x01\x00\x00\x00\x00\xa0\xaalink.Pulse\x07\xcc\xff\xcb\x40\x29\x00\x00\x00\x00\x00\x00",
        0,
        Frame(1000, 2000, Lane.LINK, 0, Pulse(7, 255, 12.5), "", (5, 300, 1 << 19, 1 << 32)),
    ),
    (
        b"\xdc\x00\x11\x16\xcf\x3f\xff\xff\xff\xff\xff\xff\xff\x2a\x02\xcd\x03\xe7\x01\x02\x03\x04\xa9local_sgd"
        b"\xadvectors.Chunk\x03\x11\x00\x00\xce\x00\x01\x00\x00\xcd\x10\x00",
        65536,
        Frame(2**62 - 1, 42, Lane.DATA, 999, Chunk(3, 17, 0, 0, 65536, 4096), "local_sgd", (1, 2, 3, 4)),
    ),
    (
        b"\xdc\x00\x12\x16\x01\x02\x02\x03\x00\x00\x00\x00\xa4test\xadtest.Specimen\xcf\x7f\xff\xff\xff\xff\xff\xff\xff"
        b"\xcb\xbf\xe0\x00\x00\x00\x00\x00\x00\xc4\x02\x00\xff\x92\xc3\xa2\xc3\xa9\x90\x92\x92\xc2\xa0\x92\xc3\xa1x"
        b"\x92\x00\xcd\x01\x2c",
        1000,
        Frame(1, 2, Lane.DATA, 3, SPECIMEN, "test"),
    ),
]
"""Frames of protocol version 22, as its peers send them. When one of these must change, so must the version."""
GOLDEN_HEADERS = {header for header, *_ in GOLDEN}


def values_of(hint: typing.Any) -> st.SearchStrategy:
    """Values that an annotation allows, its edges among them."""
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return instances_of(hint)
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is tuple:
        return st.lists(values_of(args[0]), max_size=4).map(tuple)
    if origin in (types.UnionType, typing.Union):
        return st.none() | values_of(args[0])
    text = st.text(max_size=30).filter(str.isprintable)
    return {
        bool: st.booleans(),
        int: st.integers(0, INT_MAX) | st.sampled_from([0, 127, 128, 255, 2**16, 2**32, INT_MAX]),
        float: st.floats(allow_nan=False, allow_infinity=False),
        str: text | st.sampled_from(["", "__class__", "../../x", "{json", "é" * 100]),
        bytes: st.binary(max_size=40),
    }[hint]


def instances_of(cls: type) -> st.SearchStrategy:
    hints = typing.get_type_hints(cls)
    fields = [values_of(hints[field.name]) for field in dataclasses.fields(cls)]

    def allowed(values: tuple[typing.Any, ...]) -> bool:
        try:
            cls(*values)
        except ValueError:
            return False  # out of the bounds that it sets itself
        return True

    return st.tuples(*fields).filter(allowed).map(lambda values: cls(*values))


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("tried", [8, soaked(100)])
def test_every_message_comes_back_as_it_went(name: str, tried: int) -> None:
    kind = wire._by_name[name]
    numbers = st.integers(0, INT_MAX)

    @settings(max_examples=tried, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(instances_of(kind.type), numbers, numbers, numbers, st.integers(0, kind.payload_max))
    def check(body: object, incarnation: int, towards: int, seq: int, payload_bytes: int) -> None:
        counts = seq, towards, incarnation, INT_MAX
        numbers = {"incarnation": incarnation, "towards": towards, "seq": seq}
        header = encode(body, payload_bytes, **numbers, channel="there", counts=counts)
        for form in (header, bytearray(header), memoryview(header)):
            assert decode(form, payload_bytes) == Frame(incarnation, towards, kind.lane, seq, body, "there", counts)

    check()


@pytest.mark.parametrize(("header", "payload_bytes", "frame"), GOLDEN, ids=lambda value: "")
def test_frames_of_version_22_decode_as_before(header: bytes, payload_bytes: int, frame: Frame) -> None:
    assert decode(header, payload_bytes) == frame
    numbers = {"incarnation": frame.incarnation, "towards": frame.towards, "seq": frame.seq}
    again = encode(frame.message, payload_bytes, **numbers, channel=frame.channel, counts=frame.counts)
    assert again == header


def outcome(header: bytes | bytearray, payload_bytes: int = 0) -> str:
    """What became of `header`: a message's name or "refused"; any exception but PeerMisbehaved is the caller's."""
    try:
        found = decode(header, payload_bytes).message
        return "not open here" if isinstance(found, wire.Unopened) else wire.kind_of(found)
    except PeerMisbehaved as error:
        assert 0 < len(str(error)) < 500  # noqa: PT017  # either outcome is right
        return "refused"


def examples() -> list[tuple[bytes, int]]:
    """A valid frame of every kind, with one or two items in each tuple, and the golden ones."""

    def filled(hint: typing.Any) -> object:
        if isinstance(hint, type) and dataclasses.is_dataclass(hint):
            return body_of(hint)
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin is tuple:
            return (filled(args[0]),) * 2
        if origin in (types.UnionType, typing.Union):
            return filled(args[0])
        return {bool: True, int: 300, float: 1.5, str: "name", bytes: b"blob"}[hint]

    def body_of(cls: type) -> object:
        hints = typing.get_type_hints(cls)
        return cls(*[filled(hints[field.name]) for field in dataclasses.fields(cls)])

    bodies = [body_of(wire._by_name[name].type) for name in KINDS]
    return [(encode(body, 0, incarnation=2**61, towards=77, seq=5, channel="x"), 0) for body in bodies] + [
        g[:2] for g in GOLDEN
    ]


def mutants(header: bytes) -> Iterator[bytes]:
    """Every truncation, every flipped bit, and bytes in front, behind and in between."""
    for at in range(len(header)):
        yield header[:at]
        for bit in range(8):
            yield header[:at] + bytes([header[at] ^ 1 << bit]) + header[at + 1 :]
        for byte in (0x00, 0x90, 0xC0, 0xC1, 0xDD, 0xFF):
            yield header[:at] + bytes([byte]) + header[at:]
            yield header[:at] + bytes([byte]) + header[at + 1 :]
    for byte in range(256):
        yield header + bytes([byte])


def test_no_mutant_of_a_valid_frame_gives_another_error() -> None:
    seen = Counter[str]()
    for header, payload_bytes in examples():
        for mutant in mutants(header):
            seen[outcome(mutant, payload_bytes)] += 1
        for at in range(len(header)):
            assert outcome(header[:at], payload_bytes) == "refused"
        for byte in range(256):
            assert outcome(header + bytes([byte]), payload_bytes) == "refused"
    assert sum(seen.values()) > 40_000
    assert seen["refused"] > 20_000
    assert len(seen) > len(KINDS) // 2, "a flipped bit of a number is still a message: or nothing was mutated"


def test_no_random_bytes_give_another_error() -> None:
    rng = random.Random(1)
    valid = [header for header, _ in examples()]
    seen = Counter[str]()
    for n in range(50_000):
        if n % 3 == 0:
            header = rng.randbytes(rng.randrange(60))
        elif n % 3 == 1:  # a valid beginning, so that the later fields are reached
            header = (base := rng.choice(valid))[: rng.randrange(len(base))] + rng.randbytes(rng.randrange(40))
        else:  # two valid ones, crossed
            first, second = rng.choice(valid), rng.choice(valid)
            header = first[: rng.randrange(len(first))] + second[rng.randrange(len(second)) :]
        seen[outcome(header, rng.choice([0, 0, 7, PAYLOAD_BYTES_MAX, 2**40]))] += 1
    assert seen["refused"] > 33_000


@settings(max_examples=400, deadline=None, derandomize=True)
@given(st.binary(max_size=200) | st.lists(st.integers(-(2**63), 2**64 - 1), max_size=12).map(msgpack.packb))
def test_no_bytes_that_hypothesis_finds_give_another_error(header: bytes) -> None:
    assert outcome(header) in {"refused", *KINDS}


NUMBERS = (wire.VERSION, 5, 6, 2, 0, 1, 2, 3, 4)
PREFIX = (*NUMBERS, "test", "test.Specimen")
FIELDS = (1, 1.5, b"b", [True, "x"], [], [], [])
ALL = len(PREFIX) + len(FIELDS)


def listed(packed: list[bytes], claimed: int = ALL) -> bytes:
    """A list of these packed values that claims to have so many."""
    return b"\xdc" + struct.pack(">H", claimed) + b"".join(packed)


def odd_headers() -> Iterator[tuple[str, bytes]]:
    yield "nothing", b""
    for byte in range(256):
        yield f"byte {byte:#x}", bytes([byte])
        yield f"a list of byte {byte:#x}", bytes([0x91, byte])
    for depth in (100, 1023, 1024, 1100, 60_000):
        yield f"{depth} lists deep", b"\x91" * depth + b"\x01"
        yield f"{depth} maps deep", b"\x81\x01" * depth + b"\x01"
        for at in range(ALL):
            plain = [*PREFIX, *FIELDS]
            packed = [msgpack.packb(value) for value in plain]
            packed[at] = b"\x91" * depth + b"\x01"
            yield f"{depth} lists deep in field {at}", listed(packed)
    for code, name in ((0xDD, "array"), (0xDF, "map"), (0xDB, "str"), (0xC6, "bin"), (0xC9, "ext")):
        yield f"{name}32 that claims 2^32-1", bytes([code]) + b"\xff" * 4
        for at in range(ALL):
            packed = [msgpack.packb(value) for value in (*PREFIX, *FIELDS)]
            packed[at] = bytes([code]) + b"\xff" * 4
            yield f"{name}32 in field {at} that claims 2^32-1", listed(packed)
    odd: list[object] = [
        -1, 2**63, 2**64 - 1, True, False, None, 0.0, -0.0, 1.0, math.nan, math.inf, -math.inf, "", "1", b"", b"1",
        "a\0b", "a\nb", "\x1b[2J", "\u2028", "x" * (STR_BYTES_MAX + 1), b"x" * (STR_BYTES_MAX + 1), [], [[]], [1, 2, 3],
        {}, {"a": 1}, [0] * (ITEMS_MAX + 1), [None] * 10, msgpack.Timestamp(1, 1), msgpack.ExtType(1, b""),
        msgpack.ExtType(99, b"x"),
    ]  # fmt: skip
    for at in range(ALL):
        for value in odd:
            fields = [*PREFIX, *FIELDS]
            fields[at] = value
            yield f"{value!s:.20} in field {at}", msgpack.packb(fields)
    yield "too few", msgpack.packb([*PREFIX, *FIELDS[:-1]])
    yield "too many", msgpack.packb([*PREFIX, *FIELDS, 0])
    yield "half a surrogate", msgpack.packb([*NUMBERS, "\ud800"], unicode_errors="surrogatepass")
    yield "not UTF-8", msgpack.packb([*NUMBERS]) + b"\xa2\xff\xfe"
    yield "a bad timestamp", msgpack.packb([*PREFIX]) + b"\xd7\xff" + b"\xff" * 8
    yield "a map with a list for key", b"\x81\x91\x01\x01"
    yield "twice the same key", b"\x82\x01\x01\x01\x02"


def test_no_odd_value_anywhere_gives_another_error() -> None:
    seen = Counter(outcome(header, 0) for _, header in odd_headers())
    assert seen["refused"] > 700
    assert 0 < seen["test.Specimen"] < 40  # 0.0 and "" and the like are fine where a float or a string is due


def test_a_wrong_type_is_refused_in_every_field_and_a_right_one_taken() -> None:
    for at, right in enumerate(FIELDS):
        for value in (
            -1,
            2**63,
            True,
            1,
            1.0,
            math.nan,
            math.inf,
            "s",
            b"s",
            None,
            [],
            [1],
            [[True, "x"]],
            [True, "x"],
        ):
            fields = [*FIELDS]
            fields[at] = value
            fits = type(value) is type(right) and value == value and value not in (math.inf, -1, 2**63)
            if isinstance(right, list):
                fits = value in {3: [[True, "x"]], 4: [[], [[True, "x"]]], 5: [[], [[True, "x"]]], 6: [[], [1]]}[at]
            assert outcome(msgpack.packb([*PREFIX, *fields])) == ("test.Specimen" if fits else "refused"), (at, value)


def test_a_message_that_is_too_large_is_refused_before_it_is_read() -> None:
    header = encode(SPECIMEN, 1000, incarnation=1, towards=2, seq=3, channel="x")
    with pytest.raises(PeerMisbehaved, match="1001 bytes of payload, at most 1000"):
        decode(header, 1001)
    with pytest.raises(PeerMisbehaved, match=f"header of {HEADER_BYTES_MAX + 1} bytes"):
        decode(bytes(HEADER_BYTES_MAX + 1), 0)
    with pytest.raises(PeerMisbehaved, match="on lane 1"):
        decode(header.replace(b"\x02\x02\x03\x00", b"\x02\x01\x03\x00"), 0)
    with pytest.raises(PeerMisbehaved, match=r"unknown message kind .test\.Specimem."):
        decode(header.replace(b"Specimen", b"Specimem"), 0)


def test_a_message_of_a_family_that_is_unknown_is_told_from_one_that_is_wrong() -> None:
    def told(lane: int = 1, name: object = "elsewhere.Ask", payload_bytes: int = 0) -> str:
        header = msgpack.packb([*NUMBERS[:3], lane, *NUMBERS[4:], "x", name, [["fields"], {"of": "any kind"}]])
        return outcome(header, payload_bytes)

    assert {told(lane) for lane in (1, 2, 3)} == {"not open here"}
    assert {told(lane) for lane in (0, 4)} == {"refused"}
    assert {told(name=name) for name in ("elsewhere", b"elsewhere.Ask", 7, "test.Ask")} == {"refused"}
    assert told(payload_bytes=PAYLOAD_BYTES_MAX + 1) == "refused"
    assert outcome(encode(SPECIMEN, 0, incarnation=1, towards=2, seq=3)) == "test.Specimen", "the reader is whole"


@pytest.mark.parametrize("channel", [1, None, b"x", ["x"], "a\nb", "x" * (wire.CHANNEL_LETTERS_MAX + 1)])
def test_a_channel_is_a_short_printable_name(channel: object) -> None:
    header = msgpack.packb([*NUMBERS, channel, "test.Specimen", *FIELDS])
    assert outcome(header) == "refused"


def test_two_families_may_have_messages_of_one_name() -> None:
    here, there = (dataclasses.make_dataclass("Hello", [("n", int)], frozen=True, slots=True) for _ in range(2))
    message("here")(here), message("there")(there)
    sent = [decode(encode(kind(7), 0, incarnation=1, towards=2, seq=3), 0).message for kind in (here, there)]
    assert [type(body) for body in sent] == [here, there]


def test_another_version_is_told_as_that_with_any_other_content() -> None:
    for version in (0, 1, 127, 2**63 - 1):
        with pytest.raises(OtherVersion, match=f"version {version}, this side speaks {wire.VERSION}"):
            decode(msgpack.packb([version, {"of": "course"}, [1, 2], "what comes later may be anything"]), 0)
    for no_version in (True, "1", 1.0, None):
        with pytest.raises(PeerMisbehaved) as error:
            decode(msgpack.packb([no_version, *PREFIX[1:], *FIELDS]), 0)
        assert type(error.value) is PeerMisbehaved


def bombs() -> Iterator[tuple[str, bytes]]:
    """Headers that claim, or make, as much as they can."""
    room = HEADER_BYTES_MAX
    start = listed([msgpack.packb(value) for value in (*PREFIX, *FIELDS[:5])])
    claims = {
        "array16": b"\xdc\xff\xff",
        "array32": b"\xdd" + struct.pack(">I", room),
        "map32": b"\xdf\x00\x01\x00\x00",
    }
    for name, claim in claims.items():
        for prefix in (b"", listed([]), start):
            yield f"nested {name}", prefix + claim * ((room - len(prefix)) // len(claim))
    for prefix in (b"", start):  # as deep as msgpack goes
        yield "small lists, nested", prefix + b"\xdc\x10\x00" * 1020
    for name, item in (("lists", b"\x90"), ("numbers", b"\x01"), ("records", b"\x92\xc3\xa0"), ("nils", b"\xc0")):
        for count in (ITEMS_MAX, 65_535):
            for prefix in (b"", start, start + b"\x90"):
                body = prefix + b"\xdc" + struct.pack(">H", count) + item * count
                yield f"{count} {name}", body[:room]
    yield "a long string", start[:-1] + b"\xda\xff\x00" + b"x" * 0xFF00
    yield "a large number of large numbers", start + b"\x90\xdc\x10\x00" + (b"\xcf" + b"\x7f" * 8) * ITEMS_MAX


def test_no_header_makes_us_allocate_more_than_a_small_multiple_of_its_bytes() -> None:
    largest = 0
    for name, header in bombs():
        assert len(header) <= HEADER_BYTES_MAX, name
        tracemalloc.start()
        try:
            outcome(header)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        largest = max(largest, peak_bytes)
        assert peak_bytes < MULTIPLE * HEADER_BYTES_MAX, (name, peak_bytes)
    assert largest > 2 * HEADER_BYTES_MAX, "the bombs did nothing"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"number": -1}, "Specimen.number: an integer from 0"),
        ({"number": 2**63}, "Specimen.number"),
        ({"number": True}, "Specimen.number"),
        ({"real": math.nan}, "Specimen.real: a finite float"),
        ({"real": 1}, "Specimen.real"),
        ({"blob": bytearray(b"x")}, "Specimen.blob"),
        ({"blob": bytes(STR_BYTES_MAX + 1)}, "Specimen.blob"),
        ({"inner": Inner(True, "two\nlines")}, "Specimen.inner: Inner.name: a printable string"),
        ({"inner": Inner(1, "x")}, "Inner.flag: a bool"),
        ({"inner": Inner(True, "é" * STR_BYTES_MAX)}, "Inner.name"),
        ({"inner": None}, "Specimen.inner: a Inner was due"),
        ({"many": [Inner(True, "x")]}, "Specimen.many: a tuple"),
        ({"numbers": (1,) * (ITEMS_MAX + 1)}, "Specimen.numbers: a tuple of at most"),
        ({"numbers": ("1",)}, "Specimen.numbers"),
        ({"many": (Inner(True, "x" * 200),) * 1400}, "needs a header of"),
    ],
)
def test_a_message_that_no_receiver_takes_is_refused_at_its_sender(changes: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said.replace(".", r"\.")):
        encode(dataclasses.replace(SPECIMEN, **changes), 0, incarnation=1, towards=2, seq=3)


def test_the_largest_header_that_may_be_sent_is_taken() -> None:
    names = tuple(Inner(True, 2 * string.ascii_letters[: n % 50]) for n in range(4000))
    body = dataclasses.replace(SPECIMEN, many=names, numbers=(INT_MAX,) * ITEMS_MAX)
    header = encode(body, 0, incarnation=INT_MAX, towards=INT_MAX, seq=INT_MAX)
    spare = HEADER_BYTES_MAX - len(header)
    body = dataclasses.replace(body, blob=bytes(min(STR_BYTES_MAX, spare - 100)))
    assert decode(encode(body, 0, incarnation=INT_MAX, towards=INT_MAX, seq=INT_MAX), 0).message == body


def test_a_message_is_registered_once_and_within_the_limits_of_the_wire() -> None:
    with pytest.raises(ValueError, match=r"two messages are called test\.Specimen"):
        message("test")(Specimen)
    for wrong in (list, dict[str, int], tuple[int, int], int | str, typing.Any):
        cls = dataclasses.make_dataclass("Wrong", [("field", wrong)], frozen=True, slots=True)
        with pytest.raises(TypeError, match="cannot be"):
            message("test")(cls)
    large = dataclasses.make_dataclass("Large", [("n", int)], frozen=True, slots=True)
    with pytest.raises(ValueError, match="the wire takes"):
        message("test", payload_max=PAYLOAD_BYTES_MAX + 1)(large)
