"""Filtered pushes: what travels of them, what a server refuses, and that a run with filters loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from counting import counting_task, steps
from live import verb
from one_server import Server, copy_of, with_server
from test_simulated_runs import TASKS
from tiers import soaked
from torch import Tensor

from samovar.aggregation.codecs.int8 import Int8
from samovar.aggregation.filters.registry import parse_filters
from samovar.aggregation.rows import Rows, Table
from samovar.aggregation.vector import Part
from samovar.peers.conversations.parameter_server import _options as options_of
from samovar.peers.conversations.parameter_server import _state as state_of
from samovar.peers.conversations.registry import Setup
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.client import Enlistment
from samovar.protocols.parameter_server.filtering import Filtering, Residual
from samovar.protocols.parameter_server.keys import Keys
from samovar.protocols.parameter_server.messages import FOREVER, Push, Pushed
from samovar.protocols.parameter_server.pieces import Pieces
from samovar.protocols.parameter_server.reading import Values
from samovar.protocols.parameter_server.shares import Pushes, Shares
from samovar.protocols.parameter_server.sparse import Sparse, dense
from samovar.protocols.parameter_server.state import State
from samovar.protocols.parameter_server.worker import Worker
from samovar.protocols.work import Update
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

STEPS, PEERS = 12, 3
KEYS = Keys([Part(0, 100), Part(100, 200), Part(200, 210)], 210, torch.float32, [Table("words", 70, 3)])


def pushed() -> Pushes:
    vector = torch.arange(210.0)
    vector[:98] = 0  # of the first range 2 of 100 travel, of the second all, of the third none
    vector[200:] = 0
    rows = Rows(torch.tensor([0, 1, 33, 69]), torch.arange(12.0).view(4, 3) + 1)
    return Pushes(vector, {"words": rows})


def came(pushes: Pushes, ranges: Sequence[int]) -> list[Tensor]:
    """The pieces that a server makes of the message about these ranges."""
    sparse = Sparse.of(KEYS, pushes)
    rows, payload = dense(KEYS, ranges, sparse.counts(ranges), sparse.payload(ranges, pushes))
    pieces = Pieces(KEYS, ranges, rows, payload).each()
    return [piece.values if isinstance(piece, Rows) else piece for piece in pieces]


@pytest.mark.parametrize("ranges", [(0,), (2,), (0, 1, 2), tuple(range(len(KEYS)))])
def test_a_server_has_the_same_pieces_of_a_push_whose_zeros_do_not_travel(ranges: tuple[int, ...]) -> None:
    pushes, whole = pushed(), Shares.of(KEYS, pushed())
    due = Pieces(KEYS, ranges, whole.counts(ranges), whole.payload(ranges, pushes)).each()
    for got, piece in zip(came(pushes, ranges), due, strict=True):
        assert torch.equal(got, piece.values if isinstance(piece, Rows) else piece)


def test_the_elements_that_travel_are_few_bytes_and_a_full_range_goes_whole() -> None:
    sparse = Sparse.of(KEYS, pushed())
    assert sparse.counts((0, 1, 2)) == (3, 0, 1)
    assert [len(sparse.payload((one,), pushed())) for one in (0, 1, 2)] == [2 * (4 + 4), 400, 0]
    assert [KEYS.piece_bytes(one, rows) for one, rows in ((0, 3), (1, 0), (2, 1))] == [16, 400, 0]


@pytest.mark.parametrize("ranges", [(0,), (1,), (0, 1, 2), tuple(range(len(KEYS)))])
def test_a_server_decodes_a_range_whose_code_is_the_shortest(ranges: tuple[int, ...]) -> None:
    codec, pushes = Int8(), pushed()
    keys = Keys(KEYS.parts, 200, torch.float32, KEYS.tables, codec)
    coded = {
        number: codec.encode(pushes.vector[part.start : part.stop], 1) for number, part in enumerate(keys.parts[:2])
    }
    decoded = pushes.vector.clone()
    for number, payload in coded.items():
        part = keys.parts[number]
        decoded[part.start : part.stop] = codec.decode(payload, part.stop - part.start, torch.float32)
    sparse = Sparse.of(keys, Pushes(decoded, pushes.rows, coded))
    assert sparse.counts((0, 1, 2)) == (3, 102, 1)  # few elements, int8, none
    message = sparse.payload(ranges, Pushes(decoded, pushes.rows, coded))
    due = sum(keys.piece_bytes(number, rows) for number, rows in zip(ranges, sparse.counts(ranges), strict=True))
    assert len(message) == due
    pieces = Pieces(keys, ranges, *dense(keys, ranges, sparse.counts(ranges), message)).each()
    whole = Shares.of(keys, Pushes(decoded, pushes.rows))
    expected = Pieces(keys, ranges, whole.counts(ranges), whole.payload(ranges, Pushes(decoded, pushes.rows))).each()
    for got, piece in zip(pieces, expected, strict=True):
        values = [one.values if isinstance(one, Rows) else one for one in (got, piece)]
        assert torch.equal(*values)


def test_a_code_without_a_codec_and_one_that_cannot_be_decoded_are_refused() -> None:
    with pytest.raises(ValueError, match="this run has no codec"):
        dense(KEYS, (0,), (102,), b"")
    keys = Keys(KEYS.parts, 210, torch.float32, KEYS.tables, Int8())
    nbytes = Int8().encoded_bytes(100)
    with pytest.raises(ValueError, match="scale"):
        dense(keys, (0,), (102,), b"\xff" * nbytes)
    with pytest.raises(ValueError, match="3 bytes for"):
        dense(keys, (0,), (102,), b"abc")
    with pytest.raises(ValueError, match="this run has no codec"):
        dense(KEYS, (3,), (3 + 1,), b"")
    with pytest.raises(ValueError, match="other numbers of elements"):
        dense(keys, (3,), (3 + 4,), b"")
    one_row = torch.tensor([3], dtype=torch.int32).numpy().tobytes() + bytes(Int8().encoded_bytes(3))
    message = dense(keys, (3,), (3 + 1,), one_row)
    with pytest.raises(ValueError, match="not among those of its ranges"):
        Pieces(keys, (3,), *message)


@pytest.mark.parametrize("ranges", [(3,), tuple(range(len(KEYS)))])
def test_a_server_decodes_rows_whose_code_is_the_shortest(ranges: tuple[int, ...]) -> None:
    """In the first block of the table 3 rows, of which a code is 13 bytes and not 36; in another one row of 4 bytes."""
    codec = Int8()
    keys = Keys(KEYS.parts, 210, torch.float32, [Table("words", 70, 4)], codec)
    values = codec.decode(codec.encode(torch.arange(12.0) + 1, 1), 12, torch.float32).view(3, 4)
    rows = Rows(torch.tensor([0, 32, 33, 64]), torch.cat((values[:2], torch.full((1, 4), 0.3), values[2:])))
    coded = {3: codec.encode(torch.arange(12.0) + 1, 1), 4: codec.encode(torch.full((4,), 0.3), 1)}
    pushes = Pushes(pushed().vector, {"words": rows}, coded)
    sparse = Sparse.of(keys, pushes)
    assert sparse.counts((3, 4, 5)) == (3 + 3, 3 + 1, 0)  # blocks of 3 rows, or of 2: codes are shorter
    message = sparse.payload(ranges, pushes)
    due = sum(keys.piece_bytes(number, many) for number, many in zip(ranges, sparse.counts(ranges), strict=True))
    assert len(message) == due
    piece = Pieces(keys, ranges, *dense(keys, ranges, sparse.counts(ranges), message)).each()[ranges.index(3)]
    assert isinstance(piece, Rows)
    assert torch.equal(piece.values, values)
    assert piece.ids.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("counts", "ids", "values", "why"),
    [
        ((3,), [5, 5], 2, "none twice"),
        ((3,), [7, 5], 2, "in order"),
        ((3,), [5, 100], 2, "not among those"),
        ((3,), [-1, 5], 2, "not among those"),
        ((103,), [], 0, "other numbers of elements"),
        ((-1,), [], 100, "0 bytes|400 bytes|other numbers"),
        ((3,), [5, 6], 3, "20 bytes for elements of 16"),
        ((), [5, 6], 2, "of 0 ranges, of 1"),
    ],
)
def test_elements_that_are_none_of_a_range_are_refused(
    counts: tuple[int, ...], ids: list[int], values: int, why: str
) -> None:
    payload = torch.tensor(ids, dtype=torch.int32).numpy().tobytes() + torch.ones(values).numpy().tobytes()
    with pytest.raises(ValueError, match=why):
        Pieces(KEYS, (0,), *dense(KEYS, (0,), counts, payload))


@pytest.mark.parametrize(
    "filters", ["significant:0.2,skip:0.3", "top_k:0.1", "skip:0.3,fp16", soaked("skip:0.9,top_k:0.5:fp16")]
)
def test_a_run_with_filters_adds_every_change_exactly(filters: str) -> None:
    settings = Settings(
        protocol="parameter-server",
        peers=PEERS,
        servers=2,
        algorithm="downpour",
        server_update="add",
        filters=filters,
        steps=STEPS,
        ranges=4,
        evaluate_every=4,
        device="cpu",
    )
    records, scenario = list[Record](), Scenario.plain(settings)
    world = World(counting_task(), scenario, records.append)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in promises.PARAMETER_SERVER:
        assert list(promise(scenario, world.log.entries)) == []
    pulled = [one.position() for life in world.lives if isinstance(one := life.peer.conversation, Worker)]
    expected = -STEPS * sum(steps(part) for part in range(PEERS))
    last = max(pulled, key=lambda position: float((position.vector == expected[0]).sum()))
    assert torch.equal(last.vector, expected[0])  # that of the worker that ended last
    assert all("parameter_server/residual" not in one.tensors for one in pulled)
    turns = [one for one in records if isinstance(one, ExchangeRecord) and not one.counts]
    assert all(one.details["held_back"] == 0 for one in turns if one.version == STEPS)
    assert min(one.details["held_back"] for one in turns if one.version == 1) > 0


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--algorithm", "easgd", "--filters", "skip"), "move by what they push"),
        (("--algorithm", "sandblaster", "--filters", "skip"), "sums of which no part may be late"),
        (("--filters", "kkt:0.1"), "a --server-update that takes gradients"),
        (("--filters", "int8,skip"), "the codec int8 comes last"),
    ],
)
def test_filters_that_do_not_go_with_the_rest_are_refused_in_one_line(flags: tuple[str, ...], why: str) -> None:
    ended = verb("simulate", TASKS / "union.py", "--protocol", "parameter-server", *flags)
    assert ended.exit_code == 2
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_resumed_worker_goes_on_with_what_its_filters_held_back() -> None:
    waits = torch.zeros(5, 2)
    waits[3] = 1.5
    tensors = Residual(torch.tensor([0.5, 0, 0, 1]), {"words": waits}).tensors()
    assert sum(tensor.numel() for tensor in tensors.values()) == 4 + 1 + 2, "of a table only rows that wait are saved"
    facts = SimpleNamespace(tables={"words": torch.ones(5, 2), "few": torch.ones(1, 1)})

    def resumed(tensors: dict[str, Tensor]) -> State:
        tensors = {"parameter_server/model": torch.zeros(4), **tensors}
        saved = SimpleNamespace(numbers={"parameter_server": [3, 6]}, tensors=tensors)
        return state_of(cast(Setup, SimpleNamespace(resumed=saved, steps=10, facts=facts)))

    state = resumed(tensors)
    assert (state.clock, state.step) == (3, 6)
    assert state.residual.vector is tensors["parameter_server/residual"]
    assert state.residual.rows.keys() == {"words"}
    assert torch.equal(state.residual.rows["words"], waits)
    none = resumed({}).residual
    assert (none.vector, none.rows) == (None, {})


def test_a_run_resumed_without_filters_pushes_what_they_had_held_back() -> None:
    facts = SimpleNamespace(parameters=None, layout=SimpleNamespace(size=4), defined={})
    setup = SimpleNamespace(settings=Settings(protocol="parameter-server"), facts=facts, steps=10)
    keys, algorithm, residual = (
        Keys([Part(0, 4)], 4, torch.float32),
        parse_algorithm("downpour"),
        Residual(torch.ones(4)),
    )
    assert options_of(cast(Setup, setup), algorithm, keys, 0, Residual()).filters is None
    filters = options_of(cast(Setup, setup), algorithm, keys, 0, residual).filters
    assert filters is not None
    change, pulled = Pushes(torch.full((4,), 2.0), {}), Values(torch.zeros(4), {}, (0,), (0,), 1, "")
    for due in (3.0, 2.0):
        sent, held = filters.apply(change, pulled, residual, 1.0, 0, seq=1, last=False)
        assert (sent.vector.tolist(), held) == ([due] * 4, 0)


@pytest.mark.parametrize(("before", "waits"), [(0, True), (3, True), (4, False)])
def test_a_restarted_worker_that_has_pushed_since_its_checkpoint_pushes_nothing_of_it_twice(
    before: int, waits: bool
) -> None:
    """The others are at 5. `before`: the number of its last push."""

    class Enlisting:
        async def enlist(self, clock: int, *, resumed: bool) -> Enlistment:
            return Enlistment(5, before)

    async def enter(contact: str) -> bool:
        return True

    state, clock = State(3, 3, torch.ones(4), residual=Residual(torch.ones(4))), SimpleNamespace(before_s=1.0)
    clock.start = lambda: None
    presence, options = SimpleNamespace(enter=enter, returns=0), SimpleNamespace(algorithm=parse_algorithm("downpour"))
    worker = Worker(*(cast(Any, one) for one in (Enlisting(), presence, clock, options, state)))
    assert asyncio.run(worker.enter("contact", 0)) == "resumed"
    assert (state.clock, bool(state.residual)) == (5, waits)


@pytest.mark.parametrize("filters", ["int8", "significant:0.5,fp16", "skip:0.5,sign", "top_k:0.3:fp16"])
def test_what_was_sent_and_what_waits_of_rows_are_all_changes(filters: str) -> None:
    """Each push touches other rows; the last one has what waits of all."""
    keys = Keys([Part(0, 4)], 4, torch.float32, [Table("words", 50, 8)], parse_filters(filters).codec)
    filtering, residual, chance = Filtering(parse_filters(filters), keys, 4), Residual(), torch.Generator()
    sent, total, held = torch.zeros(50, 8), torch.zeros(50, 8), 0
    for turn in range(30):
        ids = torch.randperm(50, generator=chance.manual_seed(turn))[:12].sort().values
        values = torch.randn(12, 8, generator=chance)
        pulled = Values(torch.zeros(4), {"words": Rows(ids, torch.ones(12, 8))}, (0,), (0,), 1, "")
        change = Pushes(torch.zeros(4), {"words": Rows(ids, values)})
        found, back = filtering.apply(change, pulled, residual, 1.0, turn, seq=turn, last=turn == 29)
        rows, held = found.rows["words"], held + back
        assert bool(torch.isin(rows.ids, ids).all()) or turn == 29
        for number, block in keys.blocks.items() if keys.codec is not None and turn < 29 else ():
            mine = rows.values[rows.ids % block.of == block.first]
            assert (number in found.coded) == bool(len(mine))
            if len(mine):
                decoded = keys.codec.decode(found.coded[number], mine.numel(), torch.float32)
                assert torch.equal(decoded.view_as(mine), mine)
        sent[rows.ids] += rows.values
        total[ids] += values
    assert torch.allclose(sent, total, atol=1e-4)
    assert not residual
    assert (held > 0) == (filters != "int8")


def test_a_script_whose_end_is_not_foreseen_pushes_what_waits_when_it_ends() -> None:
    pushes, keys = list[tuple[int, Pushes, bool]](), Keys([Part(0, 4)], 4, torch.float32, [Table("words", 5, 2)])

    class Pushing:
        def push(self, seq: int, pushed: Pushes, read: object, *, last: bool, rest: bool, sparse: bool) -> None:
            assert rest
            assert sparse
            pushes.append((seq, pushed, last))

        async def at_most(self, count: int) -> None: ...

    filtering = Filtering(parse_filters("skip"), keys, 4)
    waits = torch.zeros(5, 2)
    waits[3] = 1.5
    state = State(7, 7, torch.ones(4), residual=Residual(torch.tensor([0.5, 0, 0, 1]), {"words": waits}))
    unchanged = lambda model: Pushes(torch.zeros_like(model), {})  # noqa: E731
    options = SimpleNamespace(filters=filtering, tables=(), steps=None, unchanged=unchanged)
    worker = Worker(*(cast(Any, one) for one in (Pushing(), SimpleNamespace(returns=0), None, options, state)))
    worker._pulled = Values(torch.ones(4), {}, (7,) * 33, (7,) * 33, 1, "")
    for _ in range(2):
        assert asyncio.run(worker.bring(Update(vector=torch.zeros(0), final=True))) is None
    ((seq, pushed, last),) = pushes
    assert (seq, last, state.clock) == (8, True, 8)
    assert pushed.vector.tolist() == [0.5, 0, 0, 1]
    assert pushed.rows["words"].ids.tolist() == [3]
    assert not state.residual, "nothing waits any more, and the second end pushes nothing"
    state.over = False
    asyncio.run(worker.bring(Update(vector=torch.zeros(0), final=True)))
    assert not any(pushes[1][1].vector), "a worker of which nothing waits takes part in the mean of the rests too"


def test_a_rest_that_comes_alone_counts_as_among_all_workers() -> None:
    """The worker a has ended, so that b, whose steps were means of both, is the last one."""

    async def scene(server: Server) -> None:
        server.parts.tenure.settle([0])
        values = torch.full((3,), 8.0).numpy().tobytes()
        push = lambda ask: Push(ask, 1, 5, (0,), (0,), (1,), True, 0, False, 0, rest=True)  # noqa: E731
        assert isinstance(await server.asked("b", push, Pushed, payload=values), Pushed)
        assert server.parts.store.copies[0].values.tolist() == [4, 4, 4]

    with_server(copy_of({"a": FOREVER, "b": 4}, {"a", "b"}, updates=4), scene)


def test_a_last_push_of_no_rows_is_of_the_tables_type() -> None:
    keys = Keys([Part(0, 4)], 4, torch.float64, [Table("words", 5, 2)])
    none, pulled = Pushes(torch.zeros(4, dtype=keys.dtype), {}), Values(torch.zeros(4), {}, (0,), (0,), 1, "")
    last, _ = Filtering(parse_filters("skip"), keys, 4).apply(none, pulled, Residual(), 1.0, 0, seq=1, last=True)
    assert not any(Sparse.of(keys, last).counts(range(1, len(keys))))


SPARSE_TASK = """
import torch
from torch import nn

TRUE = torch.zeros(60)
TRUE[::12] = torch.tensor([2.0, -3.0, 1.5, -1.0, 2.5])


def model():
    made = nn.Linear(60, 1, bias=False)
    nn.init.zeros_(made.weight)
    return made


def data(part, parts):
    inputs = torch.randn(200, 60, generator=torch.Generator().manual_seed(part))
    return [(inputs, inputs @ TRUE)]


def loss(model, batch):
    return (model(batch[0])[:, 0] - batch[1]).square().mean() / 2


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.1)


def shrink(values, gradient, rate=0.1, penalty=0.3):
    moved = values - rate * gradient
    return moved.sign() * (moved.abs() - rate * penalty).clamp(min=0)
"""


def test_kkt_holds_back_most_of_a_sparse_model_and_changes_it_hardly(tmp_path: Path) -> None:
    (tmp_path / "sparse.py").write_text(SPARSE_TASK)

    def trained(filters: str | None) -> tuple[Tensor, list[float]]:
        own = {"protocol": "parameter-server", "server_update": "shrink", "filters": filters}
        settings = Settings(**own, peers=3, steps=60, device="cpu")
        records = list[Record]()
        world = World(
            load_task(tmp_path / "sparse.py", "", settings.own.asks_of_task()), Scenario.plain(settings), records.append
        )
        run_virtual(world.run(within_s=300), seed=0)
        worker = next(one for life in world.lives if isinstance(one := life.peer.conversation, Worker))
        turns = [one for one in records if isinstance(one, ExchangeRecord) and not one.counts]
        return worker.position().vector, [one.details.get("held_back", 0.0) for one in turns]

    plain, _ = trained(None)
    found, held = trained("kkt:0.2")
    assert (plain != 0).sum() == (found != 0).sum() == 5
    assert torch.allclose(found, plain, atol=0.02)
    assert sum(held[-30:]) / 30 > 40  # of 60
