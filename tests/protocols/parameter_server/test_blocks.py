"""Blocks of rows: how tables are cut, what travels, and what is refused before anything is changed."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_table_runs import OWN, WORDS

from samovar.aggregation.rows import Rows, Table, ascending
from samovar.aggregation.server.adagrad import Adagrad
from samovar.aggregation.vector import Part, all_finite
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.parameter_server.copy_bytes import packed_copy
from samovar.protocols.parameter_server.handover import Handover
from samovar.protocols.parameter_server.keys import Keys, Model, Piece
from samovar.protocols.parameter_server.messages import Install
from samovar.protocols.parameter_server.pieces import Pieces, ids_of, of_pieces, packed
from samovar.protocols.parameter_server.serving import Serving
from samovar.protocols.parameter_server.shares import Pushes, Shares
from samovar.protocols.parameter_server.store import Entry, Store
from samovar.protocols.parameter_server.worker import Worker
from samovar.protocols.wire.frames import PAYLOAD_BYTES_MAX
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

KEYS = Keys([Part(0, 2), Part(2, 5)], 5, torch.float32, [Table("words", 70, 3), Table("few", 2, 1)])
MODEL = Model(torch.arange(5.0), {"words": torch.arange(210.0).view(70, 3), "few": torch.tensor([[5.0], [6.0]])})


def ids(*numbers: int) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.int64)


def pushes(**rows: torch.Tensor) -> Pushes:
    tables = {"words": 3, "few": 1}
    return Pushes(torch.ones(5), {name: Rows(some, torch.ones(len(some), tables[name])) for name, some in rows.items()})


def test_the_ranges_hold_every_value_once() -> None:
    assert len(KEYS) == 2 + 32 + 2
    held = torch.cat([KEYS.values(number, MODEL).flatten() for number in range(len(KEYS))])
    everything = torch.cat([MODEL.vector, *(table.flatten() for table in MODEL.tables.values())])
    assert torch.equal(held.sort().values, everything.sort().values)
    assert sum(KEYS.size(number) for number in range(len(KEYS))) == 5 + 210 + 2


def test_a_message_can_carry_every_block_and_tables_have_a_limit() -> None:
    keys = Keys([], 0, torch.float32, [Table("large", 10**6, 64)])
    assert len(keys) < 130
    assert all(keys.piece_bytes(number, keys.blocks[number].rows) <= PAYLOAD_BYTES_MAX for number in keys.blocks)
    with pytest.raises(ValueError, match="at most 1024"):
        Keys([], 0, torch.float32, [Table("huge", 10**8, 64)])
    with pytest.raises(ValueError, match="a row of table 'wide'"):
        Keys([], 0, torch.float32, [Table("wide", 2, 10**6)])


def handed_on(ranges: Sequence[int], pieces: Sequence[Piece]) -> tuple[tuple[int, ...], bytes]:
    """What a message to the next server of a chain has for these pieces, each of one range."""
    counts, payload = of_pieces(KEYS, [((number,), piece) for number, piece in zip(ranges, pieces, strict=True)])
    return counts, bytes(payload)


def test_pushed_pieces_arrive_and_pulled_ones_are_put_together() -> None:
    pushed = pushes(words=ids(0, 1, 32, 69), few=ids(1))
    shares, every = Shares.of(KEYS, pushed), range(len(KEYS))
    arrived = Pieces(KEYS, every, shares.counts(every), shares.payload(every, pushed)).each()
    again = Pieces(KEYS, every, *handed_on(every, arrived)).each()
    assert handed_on(every, again) == (shares.counts(every), shares.payload(every, pushed)), "it goes on in the chain"
    store = Store(KEYS, Adagrad(1.0))
    for number, piece in zip(every, arrived, strict=True):
        store.copies[number] = store.create(number, MODEL)
        store.enter(Entry((number,), piece, {}))
    found = [
        store.copies[number].values[shares.ids[number]] if number in KEYS.blocks else store.copies[number].values
        for number in every
    ]
    pulled = shares.blank()
    shares.put(torch.cat([values.flatten() for values in found]), every, pulled)
    assert torch.equal(pulled.vector, MODEL.vector - 1), "the first step of Adagrad is the rate"
    assert torch.equal(pulled.rows["words"].values, MODEL.tables["words"][[0, 1, 32, 69]] - 1)
    assert pulled.rows["few"].values.tolist() == [[5.0]]
    assert sum(int((copy.state["squares"] != 0).sum()) for copy in store.copies.values()) == 5 + 4 * 3 + 1


def test_tensors_that_were_lent_stay_as_they_were() -> None:
    """A checkpoint is written beside the event loop, and must not be torn."""
    store = Store(KEYS, Adagrad(1.0))
    number = KEYS.of_table["words"][0]
    copy = store.copies[number] = store.create(number, MODEL)
    copy.lent = True
    values, squares = copy.values, copy.state["squares"]
    before = values.clone()
    for _ in range(2):
        store.enter(Entry((number,), Rows(ids(KEYS.place(number) + 1), torch.ones(1, 3)), {}))
    assert torch.equal(values, before)
    assert not squares.any()
    assert not torch.equal(copy.values, before)


WRONG = [
    (pushes(words=ids(70)), "of the 70 rows of table 'words'"),
    (pushes(words=ids(-1)), "of the 70 rows"),
    (pushes(words=ids(3, 3)), "none twice"),
    (pushes(words=ids(3).int()), "int64"),
    (Pushes(torch.ones(5), {"words": Rows(ids(3), torch.ones(1, 4))}), r"torch.float32 of \(1, 3\)"),
    (Pushes(torch.ones(5), {"words": Rows(ids(3), torch.ones(1, 3).double())}), "are torch.float64"),
    (Pushes(torch.ones(5), {"other": Rows(ids(3), torch.ones(1, 3))}), "no table 'other'"),
    (Pushes(torch.ones(4), {}), "the vector is"),
]


@pytest.mark.parametrize(("pushed", "said"), WRONG)
def test_a_push_of_rows_that_a_table_does_not_have_is_refused_by_its_sender(pushed: Pushes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Shares.of(KEYS, pushed)


@given(st.binary(max_size=120), st.lists(st.tuples(st.integers(0, len(KEYS) - 1), st.integers(-1, 4)), max_size=6))
def test_whatever_arrives_is_refused_or_is_rows_of_its_ranges(payload: bytes, told: list[tuple[int, int]]) -> None:
    ranges = list(dict.fromkeys(number for number, _ in told))
    counts = [count for _, count in told][: len(ranges)]
    try:
        pieces = Pieces(KEYS, ranges, counts, payload).each()
    except ValueError:
        return
    for number, piece in zip(ranges, pieces, strict=True):
        if isinstance(piece, Rows):
            assert ascending(piece.ids - KEYS.place(number), KEYS.blocks[number].rows)
            assert piece.values.shape == (len(piece.ids), KEYS.shape(number)[1])
        else:
            assert tuple(piece.shape) == KEYS.shape(number)


few_ids = st.lists(st.integers(-1, 3), max_size=3).map(lambda some: torch.tensor(some, dtype=torch.int64))


@given(st.lists(few_ids, max_size=4))
def test_rows_of_several_blocks_are_judged_as_those_of_each(told: list[torch.Tensor]) -> None:
    ranges = list(KEYS.of_table["words"])[: len(told)]
    sound = all(ascending(some, KEYS.blocks[number].rows) for number, some in zip(ranges, told, strict=True))
    try:
        found = ids_of(KEYS, ranges, [len(some) for some in told], packed(told, []))
    except ValueError:
        assert not sound
    else:
        assert sound
        assert all(torch.equal(found[number], some) for number, some in zip(ranges, told, strict=True))


def test_rows_that_a_block_lacks_are_refused_by_the_server() -> None:
    number = KEYS.of_table["words"][0]
    payload = packed([ids(2, 3)], [torch.ones(2, 3)])
    assert KEYS.blocks[number].rows == 3
    for some in (payload, payload[:6]):
        with pytest.raises(ValueError, match=r"not among those|numbers of its rows are"):
            ids_of(KEYS, [number], [2], some)


class Spoiled:
    """Has a worker push rows with a number that is not finite, at its third push."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 3
        pushed = Worker.bring.__globals__["Options"].pushed

        def spoiled(options: Any, change: Pushes, *others: Any) -> Pushes:
            self.left -= 1
            found: Pushes = pushed(options, change, *others)
            if self.left == 0:
                found.rows["words"].values[0, 0] = float("nan")
            return found

        monkeypatch.setattr(Worker.bring.__globals__["Options"], "pushed", spoiled)


def test_a_row_that_is_not_finite_is_refused_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    Spoiled(monkeypatch)
    world = World(load_task(WORDS), Scenario.plain(Settings(**{**OWN, "patience_s": 0.5})))
    with pytest.raises(ValueError, match="the push was not taken: it has numbers that are not finite"):
        run_virtual(world.run(within_s=100), seed=0)
    assert len([life for life in world.lives if life.error is not None]) == 1
    assert sum(life.result is not None and life.result.finished for life in world.lives) == 4
    for life in world.lives:
        if isinstance(life.peer.conversation, Serving):
            tensors = life.peer.conversation.position().tensors
            assert all(all_finite(tensor) for tensor in tensors.values())


def test_a_copy_in_several_messages_is_taken_in_their_order_alone() -> None:
    store = Store(KEYS, Adagrad())
    number = KEYS.of_table["words"][0]
    copy = store.create(number, MODEL)
    payload, handover = packed_copy(copy), Handover(None, store, None, lambda peer, why: None)  # type: ignore[arg-type]

    def install(at: int) -> Install:
        return Install(1, 1, number, at, 0, 0, 0, 0, (), (), (), ("squares",), False)

    with pytest.raises(ValueError, match="came after"):
        handover.arrived(install(8), payload[8:])
    assert handover.arrived(install(0), payload[:8]) is None
    with pytest.raises(ValueError, match="came after"):
        handover.arrived(install(12), payload[12:])
    assert handover.arrived(install(0), payload[:8]) is None
    whole = handover.arrived(install(8), payload[8:])
    assert whole is not None
    assert torch.equal(whole.values, copy.values)
