"""Blocks of one table take a push together: what is pushed to several at once does to each what it does to it alone."""

from collections import Counter
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_table_runs import OWN, play

from samovar.aggregation.rows import Rows, Table
from samovar.aggregation.server.adagrad import Adagrad
from samovar.aggregation.server.adam import Adam
from samovar.aggregation.server.add import Add
from samovar.aggregation.server.function import ServerFunction
from samovar.aggregation.vector import Part
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.parameter_server import chain
from samovar.protocols.parameter_server.chain import Chains
from samovar.protocols.parameter_server.gathering import Gathering
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.pieces import Pieces, joined, of_pieces, parted
from samovar.protocols.parameter_server.store import Entry, Store
from samovar.protocols.wire.schema import ITEMS_MAX
from samovar.sims.scenarios.scenario import Scenario

KEYS = Keys([Part(0, 5)], 5, torch.float32, [Table("words", 70, 3), Table("few", 2, 1)])
WORDS = tuple(KEYS.of_table["words"])
numbers = st.sets(st.integers(0, 69), max_size=9).map(lambda some: torch.tensor(sorted(some), dtype=torch.int64))


def rows_at(places: torch.Tensor) -> Rows:
    return Rows(places, torch.randn(len(places), 3, generator=torch.Generator().manual_seed(len(places))))


def same(one: object, other: object) -> bool:
    assert isinstance(one, Rows)
    assert isinstance(other, Rows)
    return torch.equal(one.ids, other.ids) and torch.equal(one.values, other.values)


def store_with(function: ServerFunction) -> Store:
    store = Store(KEYS, function)
    model = Model(torch.arange(5.0), {"words": torch.arange(210.0).view(70, 3), "few": torch.ones(2, 1)})
    for number in range(len(KEYS)):
        store.copies[number] = store.create(number, model)
    return store


@given(numbers)
def test_rows_of_many_blocks_are_those_of_each_block(places: torch.Tensor) -> None:
    rows = rows_at(places)
    counts, ids = KEYS.divided(WORDS, rows.ids)
    assert torch.equal(KEYS.placed(WORDS, counts, ids), places)
    pieces = parted(KEYS, WORDS, rows)
    assert [len(piece) for piece in pieces] == counts
    for number, piece, own in zip(WORDS, pieces, torch.split(ids, counts), strict=True):
        assert isinstance(piece, Rows)
        assert torch.equal(piece.ids - KEYS.place(number), own)
        assert all(0 <= one < KEYS.blocks[number].rows for one in own.tolist())
    assert same(joined(pieces), rows)


@given(numbers, st.integers(1, 31))
def test_a_message_of_many_blocks_is_read_as_it_was_written(places: torch.Tensor, first: int) -> None:
    groups = [WORDS[first:], WORDS[:first]]  # two entries, of which each ascends
    split = dict(zip(WORDS, parted(KEYS, WORDS, rows_at(places)), strict=True))
    wholes = [joined([split[number] for number in group]) for group in groups]
    counts, payload = of_pieces(KEYS, list(zip(groups, wholes, strict=True)))
    pieces = Pieces(KEYS, (*groups[0], *groups[1]), counts, payload)
    until = len(groups[0])
    assert same(pieces.of(range(until)), wholes[0])
    assert same(pieces.of(range(until, 32)), wholes[1])
    assert same(pieces.of((0, until - 1)), joined([split[WORDS[first]], split[WORDS[-1]]])) or until == 1


@pytest.mark.parametrize("function", [Add(), Adagrad(), Adam()], ids=lambda function: type(function).__name__)
def test_blocks_that_are_updated_at_once_become_what_each_becomes_alone(function: ServerFunction) -> None:
    together, alone = store_with(function), store_with(function)
    for places in (torch.arange(0, 70, 3), torch.arange(70), torch.tensor([69]), torch.empty(0, dtype=torch.int64)):
        rows = rows_at(places)
        together.copies[WORDS[0]].lent = alone.copies[WORDS[0]].lent = True
        together.enter(Entry(WORDS, rows, {"a": 1}))
        for number, piece in zip(WORDS, parted(KEYS, WORDS, rows), strict=True):
            alone.enter(Entry((number,), piece, {"a": 1}))
    for number in range(len(KEYS)):
        one, other = together.copies[number], alone.copies[number]
        assert torch.equal(one.values, other.values)
        assert all(torch.equal(one.state[name], other.state[name]) for name in one.state)
        assert one.is_like(other)
        assert one.version == other.version


def test_what_is_gathered_for_blocks_is_parted_where_they_are_alike_no_longer() -> None:
    gathering, rows = Gathering(WORDS), rows_at(torch.arange(0, 70, 2))
    gathering.add("a", 1, rows, 1.0, last=False)
    groups = [WORDS[::2], WORDS[1::2]]
    totals = [one.total for one in gathering.parted(groups, KEYS)]
    each = dict(zip(WORDS, parted(KEYS, WORDS, rows), strict=True))
    for group, total in zip(groups, totals, strict=True):
        assert same(total, joined([each[number] for number in group]))


def test_an_entry_that_no_message_can_carry_goes_on_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of many workers' pushes can have more rows than one worker's message."""
    sent, send = Counter[int](), Chains._send
    most = 1 << 20

    def counted(self: Chains, entries: Sequence[Entry]) -> None:
        sent[most] += 1
        send(self, entries)

    monkeypatch.setattr(Chains, "_send", counted)
    models = []
    for most in (1 << 20, 40):
        monkeypatch.setattr(chain, "PAYLOAD_BYTES_MAX", most)
        world = play(Scenario.plain(Settings(**{**OWN, "copies": 2, "steps": 2})))
        assert [life.error for life in world.lives] == [None] * 5
        models.append([parameter.detach() for parameter in world.lives[0].trainer.model.parameters()])
    assert sent[40] > 2 * sent[1 << 20]
    assert all(torch.equal(one, other) for one, other in zip(*models, strict=True))


def test_an_entry_whose_workers_clocks_no_message_can_list_goes_on_in_several() -> None:
    """A table may have hundreds of blocks, and each worker of a step has a clock in each."""
    keys = Keys([], 0, torch.float32, [Table("many", 20_000_000, 24)])
    blocks = tuple(keys.of_table["many"])
    store = Store(keys, Add())
    chains = Chains.__new__(Chains)
    chains._store = store
    rows = Rows(torch.tensor([keys.place(number) for number in blocks]), torch.ones(len(blocks), 24))
    entry = Entry(blocks, rows, {f"worker {number}": 1 for number in range(9)})
    batches = [*chains._batches([entry], ITEMS_MAX // 9)]
    assert all(9 * sum(len(one.ranges) for one in batch) <= ITEMS_MAX for batch in batches)
    parts = [one for batch in batches for one in batch]
    assert tuple(number for one in parts for number in one.ranges) == blocks
    assert same(joined([one.pushed for one in parts if one.pushed is not None]), rows)
