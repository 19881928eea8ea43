"""Filtered pulls: a worker is sent only what has changed since its last pull, a server keeps as much for a hundred
workers as for one, and no run loses anything by it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from counting import counting_task, steps
from live import verb
from test_simulated_runs import TASKS
from tiers import soaked
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from samovar.aggregation.codecs.int8 import Int8
from samovar.aggregation.filters.pulls import PullFilters
from samovar.aggregation.rows import Table
from samovar.aggregation.server.adagrad import Adagrad
from samovar.aggregation.server.add import Add
from samovar.aggregation.server.showing import SHOWN
from samovar.aggregation.vector import Part
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.protocols.channel import Envelope
from samovar.protocols.link.link import PeerLost
from samovar.protocols.parameter_server.events import Holds, Showed
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.messages import Pulled
from samovar.protocols.parameter_server.parcels import Parcels
from samovar.protocols.parameter_server.patches import Patch, patch, patched
from samovar.protocols.parameter_server.reading import Held, Reading
from samovar.protocols.parameter_server.serving import restored, saved
from samovar.protocols.parameter_server.shares import Pushes, Shares
from samovar.protocols.parameter_server.store import Entry, Store
from samovar.protocols.parameter_server.worker import Worker
from samovar.sims.checkers import parameter_server as promises
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

PARTS, TABLE = (Part(0, 3000), Part(3000, 6000), Part(6000, 6100)), Table("words", 70, 3)
RANGES = (0, 1, 2)
DIGITS = Path(__file__).parents[3] / "examples/digits.py"
STEPS, PEERS = 12, 3


def store(pulls: PullFilters, function: Add | Adagrad | None = None, *, rows: bool = False) -> Store:
    """A server of a vector of ones, the last range of which are averaged buffers, and perhaps of a table."""
    keys = Keys(PARTS, 6000, torch.float32, [TABLE] if rows else [], None, pulls)
    made = Store(keys, function or Add())
    initial = Model(torch.ones(6100), {"words": torch.arange(210.0).view(70, 3)})
    made.copies = {number: made.create(number, initial) for number in range(len(keys))}
    return made


def push(made: Store, few: int, seed: int) -> None:
    """Change `few` elements of each of the first two ranges."""
    change = torch.zeros(6000)
    chance = torch.Generator().manual_seed(seed)
    for part in PARTS[:2]:
        change[part.start + torch.randperm(3000, generator=chance)[:few]] = 1.0
    made.enter(Entry((0, 1), change, {}))


def sent(made: Store, held: Sequence[int]) -> Patch:
    return patch(made.keys, made.copies, RANGES, held, 0, {})


def read(made: Store, ranges: Sequence[int], one: Patch, before: Tensor | None) -> Tensor:
    """The vector that a worker makes of the patch, which held the vector `before`."""
    shares = Shares(made.keys, {})
    into = shares.blank()
    if before is not None:
        into.vector.copy_(before)
    patched(made.keys, shares, ranges, one.forms, one.payload.numpy().tobytes(), into, held=before is not None)
    return into.vector


def shown(made: Store) -> Tensor:
    return torch.cat([made.copies[number].shown for number in RANGES])


@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_a_worker_that_pulls_at_any_times_holds_what_is_shown(threshold: float) -> None:
    """An element's first changes are above the share, the third is not. A worker pulls after 1, 2, 4, ... updates."""
    made, pulls = store(PullFilters(threshold)), 0
    held, own = (0, 0, 0), None
    for update in range(70):
        if update & (update - 1) == 0:
            found = sent(made, held)
            own, held = read(made, RANGES, found, own), tuple(1 + made.copies[one].updates for one in RANGES)
            assert torch.equal(own, shown(made))
            pulls += 0 < len(found.payload) < 6100 * 4 / 2
        push(made, 20, update)
    assert pulls >= 3, "some were few elements"
    exact = torch.cat([made.copies[number].values for number in RANGES])
    assert torch.equal(exact, shown(made)) == (threshold == 0.0)


def test_a_range_that_has_not_changed_is_not_sent_again_and_few_elements_are_few_bytes() -> None:
    made = store(PullFilters())
    push(made, 10, 0)
    assert sent(made, (0, 0, 0)).sizes == (12_000, 12_000, 400)
    assert sent(made, (2, 2, 1))[:2] == ((1, 1, 1), (0, 0, 0))
    assert sent(made, (1, 2, 1))[:2] == ((11, 1, 1), (80, 0, 0))
    push(made, 2000, 1)
    assert sent(made, (2, 2, 0))[:2] == ((0, 0, 0), (12_000, 12_000, 400)), "2,000 with their numbers are 16,000 bytes"


def test_a_codec_encodes_a_range_of_which_much_has_changed_but_no_buffers() -> None:
    made, codec = store(PullFilters(0.0, Int8())), Int8()
    push(made, 10, 0)
    first = sent(made, (0, 0, 0))
    assert first.forms == (3002, 3002, 0)
    assert first.sizes == (codec.encoded_bytes(3000), codec.encoded_bytes(3000), 400)
    assert torch.allclose(read(made, RANGES, first, None), shown(made), atol=0.01)
    assert sent(made, (1, 1, 1)).forms == (11, 11, 1), "10 elements are fewer bytes than a code"


def test_an_update_that_changes_nothing_shown_costs_no_bytes() -> None:
    made = store(PullFilters(0.5))
    made.enter(Entry((0, 1), torch.full((6000,), 0.2), {}))
    assert sent(made, (1, 1, 1)).sizes == (0, 0, 0)
    made.enter(Entry((0, 1), torch.full((6000,), 0.4), {}))
    assert sent(made, (1, 1, 1)).sizes == (12_000, 12_000, 0)


def test_rows_come_whole_or_encoded() -> None:
    wanted = torch.tensor([0, 1, 32, 33, 64])
    for codec, factor in ((None, 12), (Int8(), 3)):
        made = store(PullFilters(0.0, codec), rows=True)
        shares = Shares(made.keys, {"words": wanted})
        into = shares.blank()
        found = patch(made.keys, made.copies, (3, 4), (0, 0), 0, shares.ids)
        assert found.sizes == tuple(rows * factor + (4 if codec else 0) for rows in (3, 2))
        patched(made.keys, shares, (3, 4), found.forms, found.payload.numpy().tobytes(), into, held=False)
        due = torch.arange(210.0).view(70, 3)[wanted]
        assert torch.allclose(into.rows["words"].values, due, atol=1.0 if codec else 0.0)


def test_what_a_server_keeps_for_pulls_does_not_grow_with_workers_and_updates() -> None:
    """One more vector, and a quarter of one: `Recent` forgets."""
    made = store(PullFilters(0.001))
    for update in range(200):
        push(made, 1 + update, update)
        for worker in range(50):
            sent(made, (1 + max(0, update - worker),) * 2 + (1,))
    for number in (0, 1):
        copy = made.copies[number]
        assert copy.recent is not None
        state = sum(tensor.nbytes for tensor in copy.state.values())
        assert state == copy.values.nbytes
        assert copy.recent._nbytes <= max(copy.values.nbytes / 4, 16384)
        assert copy.recent.changed(0) is None, "the first updates are forgotten"
        assert copy.recent.changed(190) is not None


class _Operations(TorchDispatchMode):
    """Counts the tensor operations within it."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def test_ranges_that_have_not_changed_cost_no_operations() -> None:
    """Of 500 ranges an update changes elements of two, and a worker lacks that update."""
    keys = Keys([Part(at, at + 8) for at in range(0, 4000, 8)], 4000, torch.float32, pulls=PullFilters(0.1))
    made, every, change = Store(keys, Add()), tuple(range(500)), torch.zeros(4000)
    made.copies = {number: made.create(number, Model(torch.ones(4000), {})) for number in every}
    change[[3, 4, 3999]] = 1.0
    made.enter(Entry(every, change, {}))
    with _Operations() as entering:
        made.enter(Entry(every, change, {}))
    with _Operations() as pulling:
        found = patch(keys, made.copies, every, (2,) * 500, 0, {})
    shares, into = Shares(keys, {}), Pushes(torch.ones(4000), {})
    with _Operations() as taking:
        patched(keys, shares, every, found.forms, found.payload.numpy().tobytes(), into, held=True)
    assert found.forms == (3, *(1,) * 498, 2)
    assert into.vector[[3, 4, 5, 3999]].tolist() == [3.0, 3.0, 1.0, 3.0]
    assert max(entering.count, pulling.count, taking.count) < 100


def test_what_a_server_no_longer_knows_is_sent_whole_and_so_is_what_it_cannot_know() -> None:
    """After each update, a worker that pulled after any update before is sent all that has changed since; one that
    tells of a later update than there is, all."""
    made, history = store(PullFilters()), [torch.ones(3000)]
    for update in range(60):
        push(made, 30, update)
        history.append(made.copies[0].shown)
        since = [patch(made.keys, made.copies, (0,), (1 + one,), 0, {}) for one in range(len(history))]
        for values, one in zip(history, since, strict=True):
            due = torch.cat((values, torch.zeros(3100)))
            assert torch.equal(read(made, (0,), one, due)[:3000], made.copies[0].shown)
    assert {one.forms for one in since} > {(0,), (1,)}
    assert sent(made, (62, -1, 2)).forms == (0, 0, 0)


def test_values_that_are_not_finite_are_shown_and_not_encoded() -> None:
    made = store(PullFilters(0.5, Int8()), rows=True)
    change = torch.zeros(6000)
    change[7], change[8] = float("inf"), float("nan")
    made.enter(Entry((0, 1), change, {}))
    made.copies[3].values[1, 1] = float("inf")
    found = sent(made, (0, 0, 0))
    assert found.forms == (0, 3002, 0)
    assert torch.equal(read(made, RANGES, found, None)[:9].isfinite(), torch.tensor([True] * 7 + [False] * 2))
    assert patch(made.keys, made.copies, (3,), (0,), 0, {3: torch.tensor([0, 1])}).forms == (0,)


def test_an_answer_that_cannot_be_used_leaves_nothing_in_the_next_one() -> None:
    """A server's answer breaks off in its second range; the next one has only what has changed."""
    made = store(PullFilters())
    for update in range(2):
        push(made, 10, update)
    held, good = Held(torch.zeros(6100), (1, 1, 0)), sent(made, (2, 2, 1))
    reading = Reading(made.keys, Shares(made.keys, {}), Counter(), cast(Parcels, None), held)
    bad = torch.cat((torch.full((3000,), 5.0).view(torch.uint8), torch.zeros(3, dtype=torch.uint8)))

    def take(forms: tuple[int, ...], payload: Tensor) -> None:
        message = Pulled(1, (2, 2, 0), (0, 0, 0), forms, "", 0)
        reading.take(cast(Envelope, _Answer("0", message, payload.numpy().tobytes())), RANGES, 1)

    with pytest.raises(PeerLost, match="cannot be used"):
        take((0, 11, 1), bad)
    take(good.forms, good.payload)
    changed = sent(made, (2, 2, 1))
    assert torch.equal(reading.values().vector, read(made, RANGES, changed, torch.zeros(6100)))
    reading = Reading(made.keys, Shares(made.keys, {}), Counter(), cast(Parcels, None))
    with pytest.raises(PeerLost, match="was to be whole"):
        take(good.forms, good.payload)


@dataclass
class _Answer:
    sender: str
    message: Pulled
    payload: bytes

    def done(self) -> None: ...


@pytest.mark.parametrize(
    ("forms", "payload", "held", "why"),
    [
        ((0,), bytes(11_999), True, "12000 are due"),
        ((0,), bytes(12_001), True, "12000 are due"),
        ((3,), b"", True, "at least 16 are due"),
        ((3,), bytes(16), True, "none twice"),
        ((3,), bytes(16), False, "no form 3"),
        ((3002,), bytes(3000), True, "no form 3002"),
        ((-1,), b"", True, "no form -1"),
        ((5000,), b"", True, "no form 5000"),
        ((0, 0), bytes(24_000), True, "2 ranges, of 1"),
    ],
)
def test_answers_that_do_not_fit_are_refused(forms: tuple[int, ...], payload: bytes, held: bool, why: str) -> None:
    made = store(PullFilters())
    shares = Shares(made.keys, {})
    with pytest.raises(ValueError, match=why):
        patched(made.keys, shares, (0,), forms, payload, shares.blank(), held=held)


def test_a_server_that_resumes_with_other_filters_shows_its_exact_values() -> None:
    def resumed(before: PullFilters, now: PullFilters) -> Store:
        old, new = store(before), store(now)
        old.enter(Entry((0, 1), torch.full((6000,), 0.2), {}))
        for copy in old.copies.values():
            copy.term = 1
        restored(new, *saved(old))
        return new

    same = resumed(PullFilters(0.5), PullFilters(0.5))
    assert (same.copies[0].shown == 1).all()
    more = resumed(PullFilters(), PullFilters(0.5)).copies[0]
    assert torch.equal(more.shown, more.values)
    less = resumed(PullFilters(0.5), PullFilters()).copies[0]
    assert SHOWN not in less.state
    assert torch.equal(less.shown, torch.full((3000,), 1.2))


def played(scenario: Scenario) -> tuple[World, list[ExchangeRecord]]:
    """The world after the scenario, whose promises are all kept, and its records."""
    records, task = list[Record](), counting_task()
    world = World(task, scenario, records.append)
    run_virtual(world.run(within_s=300), seed=0)
    for promise in promises.PARAMETER_SERVER:
        assert list(promise(scenario, world.log.entries)) == []
    return world, [one for one in records if isinstance(one, ExchangeRecord)]


def counting(**own: object) -> Scenario:
    chosen = {"protocol": "parameter-server", "peers": PEERS, "servers": 2, "algorithm": "downpour", "steps": STEPS}
    common = {"server_update": "add", "ranges": 4, "evaluate_every": 4, "device": "cpu"}
    return Scenario.plain(Settings(**{**chosen, **common, **own}))


@pytest.mark.parametrize(
    "own",
    [
        {"pull_filters": "significant:0.2"},
        {"pull_filters": "int8", "consistency": "bsp"},
        soaked({"pull_filters": "changed", "filters": "top_k:0.05"}),
        soaked({"pull_filters": "significant:0.5,fp16", "consistency": "ssp:1"}),
    ],
)
def test_a_run_with_filtered_pulls_adds_every_change_exactly_and_ends_with_the_exact_model(own: dict[str, str]) -> None:
    """The change of a step is made of whole numbers, and does not depend on what was pulled but for rounding."""
    world, _ = played(counting(**own))
    pulled = [one.position() for life in world.lives if isinstance(one := life.peer.conversation, Worker)]
    expected = -STEPS * sum(steps(part) for part in range(PEERS))[0]
    best = min(float((position.vector - expected).abs().max()) for position in pulled)
    assert best <= (0.0 if own["pull_filters"] == "changed" else 1e-4)
    showed = [entry.event for entry in world.log.entries if isinstance(entry.event, Showed)]
    assert any(not torch.equal(one.shown, one.values) for one in showed) == ("significant" in own["pull_filters"])


@pytest.mark.parametrize("first", [120, *(soaked(first) for first in range(60, 400, 20) if first != 120)])
@pytest.mark.parametrize("who", [0, soaked(1), soaked(3)])
def test_whoever_crashes_workers_hold_what_the_servers_show(who: int, first: int) -> None:
    plain = counting(servers=3, pull_filters="significant:0.2", consistency="ssp:1", patience_s=0.5, steps=4)
    for at in range(first, first + 20, 7 if first == 120 else 2):
        world, _ = played(replace(plain, faults=(Fault(kind=Kind.CRASH, who=(who,), at_event=at),)))
        assert len([life for life in world.lives if life.result is not None and life.result.finished]) >= 5, at


def test_pulls_of_a_model_of_which_pushes_change_few_elements_are_few_bytes() -> None:
    def pulled(**own: str) -> int:
        _, records = played(counting(filters="top_k:0.02", **own))
        return sum(sum(one.counts["pulled"].values()) for one in records if one.counts)

    assert pulled(pull_filters="changed") < 0.7 * pulled()


@pytest.mark.soak
def test_filters_save_most_bytes_of_digits_at_equal_accuracy() -> None:
    def trained(**own: str) -> tuple[float, float, float]:
        """The accuracy, and the bytes that a worker sends and receives."""
        common = {"protocol": "parameter-server", "peers": 3, "servers": 2, "steps": 300, "evaluate_every": 300}
        records = list[Record]()
        world = World(load_task(DIGITS), Scenario.plain(Settings(**common, device="cpu", **own)), records.append)
        run_virtual(world.run(), seed=0)
        told = [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "1"]
        metrics = next(one.metrics for one in reversed(records) if isinstance(one, ExchangeRecord) and one.metrics)
        return metrics["accuracy"], sum(one.bytes_sent for one in told), sum(one.bytes_received for one in told)

    accuracy, sent, received = trained()
    for filters, pulls in (("int8", "int8"), ("top_k:0.05", "changed"), ("skip:0.3,int8", "significant:0.03")):
        found = trained(filters=filters, pull_filters=pulls)
        assert abs(found[0] - accuracy) <= 0.01, (filters, pulls)
        assert found[1] < 0.4 * sent, (filters, pulls)
        assert found[2] < 0.4 * received, (filters, pulls)


def test_a_worker_that_holds_other_values_than_were_shown_is_found() -> None:
    scenario, ones = counting(pull_filters="significant:0.1"), torch.ones(3)
    promise = promises.a_filtered_pull_is_near_the_values

    def told(shows: Tensor, holds: Tensor) -> list[str]:
        events = Showed(0, "0", 5, shows, ones), Holds(0, "0", 5, holds)
        return list(promise(scenario, [(0.0, life, event) for life, event in zip("30", events, strict=True)]))

    assert told(0.95 * ones, 0.95 * ones) == []
    assert told(0.8 * ones, 0.8 * ones) == ["3 shows 0 range 0 beyond significant:0.1"]
    assert told(ones, 0.99 * ones) == ["0 holds other values of range 0 after update 5 than were shown"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--algorithm", "sandblaster", "--pull-filters", "int8"), "all compute at the same point"),
        (("--algorithm", "hogwild", "--pull-filters", "int8"), "without servers and pushes"),
        (("--pull-filters", "skip"), "skip is a filter of pushes"),
        (("--pull-filters", "sign"), "the codec sign encodes no pulls"),
    ],
)
def test_filters_of_pulls_that_do_not_go_with_the_rest_are_refused_in_one_line(
    flags: tuple[str, ...], why: str
) -> None:
    ended = verb("simulate", TASKS / "union.py", "--protocol", "parameter-server", *flags)
    assert ended.exit_code == 2
    assert why in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_model_of_rows_alone_has_nothing_that_is_sent_only_when_changed() -> None:
    task = load_task(TASKS / "words.py")

    class Products(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = torch.nn.Embedding(60, 3, sparse=True)
            self.contexts = torch.nn.Embedding(41, 3, sparse=True)

        def forward(self, word: Tensor, context: Tensor) -> Tensor:
            return (self.words(word) * self.contexts(context)).sum(1)

    def ended(pull_filters: str) -> list[object]:
        own = {"protocol": "parameter-server", "peers": 2, "servers": 1, "steps": 4, "device": "cpu"}
        world = World(
            replace(task, model=Products),
            Scenario.plain(Settings(**own, pull_filters=pull_filters)),
            lambda record: None,
        )
        run_virtual(world.run(within_s=300), seed=0)
        return [life.error for life in world.lives]

    assert ended("fp16") == [None] * 3
    with pytest.raises(ValueError, match="name a codec"):
        ended("changed")
