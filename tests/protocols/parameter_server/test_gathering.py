"""Gathering: which pushes make an update, and what becomes of the clocks."""

import pytest
import torch

from samovar.aggregation.server.adam import Adam
from samovar.aggregation.server.add import Add
from samovar.aggregation.vector import Part
from samovar.protocols.parameter_server.algorithms.registry import parse_algorithm
from samovar.protocols.parameter_server.copy_bytes import fill, nbytes_of, packed_copy
from samovar.protocols.parameter_server.gathering import Gathering
from samovar.protocols.parameter_server.keys import Keys, Model
from samovar.protocols.parameter_server.messages import FOREVER
from samovar.protocols.parameter_server.store import Copy, Entry, Store


def copy_of(**clocks: int) -> Copy:
    return Copy(torch.zeros(3), {}, term=1, clocks=dict(clocks), enlisted={*clocks})


def test_a_step_waits_for_all_workers_and_is_their_mean() -> None:
    algorithm, copy, gathering = parse_algorithm("sync"), copy_of(a=4, b=4, c=FOREVER), Gathering((0,))
    gathering.add("a", 5, torch.full((3,), 2.0), 1.0, last=False)
    assert not gathering.due(algorithm, copy.counted())
    gathering.add("b", 5, torch.full((3,), 4.0), 1.0, last=True)
    assert gathering.due(algorithm, copy.counted()), "a worker that has ended is not waited for"
    entry = gathering.entry(algorithm, copy.counted())
    assert entry.pushed is not None
    assert entry.pushed.tolist() == [3, 3, 3]
    assert entry.clocks == {"a": 5, "b": FOREVER}
    assert entry.pushes == (("a", 5), ("b", 5))


def test_a_step_with_a_backup_worker_goes_on_without_the_last() -> None:
    algorithm, copy, gathering = parse_algorithm("backup:1"), copy_of(a=4, b=4, c=4), Gathering((0,))
    gathering.add("c", 5, torch.ones(3), 1.0, last=False)
    assert not gathering.due(algorithm, copy.counted())
    gathering.add("a", 5, torch.ones(3), 1.0, last=False)
    assert gathering.due(algorithm, copy.counted())
    assert gathering.entry(algorithm, copy.counted()).clocks == {"a": 5, "b": 5, "c": 5}
    alone = copy_of(a=4)
    gathering = Gathering((0,))
    assert not gathering.due(algorithm, alone.counted()), "there is no update without a push"
    gathering.add("a", 5, torch.ones(3), 1.0, last=False)
    assert gathering.due(algorithm, alone.counted())


@pytest.mark.parametrize("name", ["softsync:1", "softsync:2", "easgd", "downpour"])
def test_averaged_buffers_of_several_pushes_are_shares_of_one_mean(name: str) -> None:
    """However many make an update: four workers, and the values on the server are 1."""
    gathering, held = Gathering((0,)), torch.ones(3)
    for many, worker in enumerate("abcd", 1):
        gathering.add(worker, 5, torch.full((3,), 0.2), 1 / 4, last=False)
        pushed = gathering.entry(parse_algorithm(name), {}, held).pushed
        assert (held + pushed).tolist() == pytest.approx([1 - 0.8 * many / 4] * 3)
    gathering.add("a", 6, torch.zeros(3), 1 / 2, last=False)  # the others have ended since
    pushed = gathering.entry(parse_algorithm(name), {}, held).pushed
    assert (held + pushed).tolist() == pytest.approx([0.2 / 1.5] * 3), "a mean of the pushed ones, and never beyond"


def test_a_copy_is_unpacked_as_it_was_packed_and_nothing_else() -> None:
    keys = Keys([Part(0, 1), Part(1, 2), Part(2, 3)], 1, torch.float32)
    store = Store(keys, Adam())
    assert [keys.is_buffer(number) for number in range(3)] == [False, True, True]
    store.copies[0] = store.create(0, Model(torch.arange(3.0), {}))
    for _ in range(3):
        store.enter(Entry((0,), torch.ones(1), {"a": 1}))
    copy, again = store.copies[0], store.blank(0, ["mean", "pushes", "square"])
    payload = packed_copy(copy)
    at = fill(again, 0, payload[:5])
    assert fill(again, at, payload[5:]) == nbytes_of(copy) == len(payload) == 16
    assert torch.equal(again.values, copy.values)
    assert all(torch.equal(again.state[name], copy.state[name]) for name in copy.state)
    assert packed_copy(copy, 12) == payload[12:]
    with pytest.raises(ValueError, match="due"):
        store.blank(0, ["mean"])
    for at, some in ((0, b""), (4, payload)):
        with pytest.raises(ValueError, match="due"):
            fill(again, at, some)
    assert isinstance(store.function(1), Add), "buffers are averaged"


def test_copies_rank_by_their_terms_and_restored_copies_below() -> None:
    def standing(term: int, past: int = 0, *, restored: bool = False) -> int:
        return Copy(torch.zeros(1), {}, term=term, past=past, restored=restored).standing

    assert 0 < standing(0, 40, restored=True) < standing(0, 41, restored=True) < standing(1, restored=True)
    assert standing(1, 90, restored=True) < standing(1) < standing(2, restored=True) < standing(2)
