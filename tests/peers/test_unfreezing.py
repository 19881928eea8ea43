"""Parameters that are unfrozen during a run: from which round on they are averaged, and who has to train them."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from loops import network, nothing_runs_on, together  # noqa: F401
from tiers import one_in
from torch import Tensor, nn

import samovar
from samovar.aggregation.growth import carried, from_bits, grown, in_order, to_bits, whole
from samovar.aggregation.vector import Layout
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task, load_task
from samovar.protocols.channel import Channel
from samovar.protocols.local_sgd.growth import Granted, Growth, Wish
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

THAWING = load_task(Path(__file__).parents[1] / "support/tasks/thawing.py")
HEAD, BODY = 6, 35
PERIOD, STEPS = 3, 30
ID = [f"peer-{index}" for index in range(5)]


def task(unfreezes: Callable[[Any, Any], bool], **more: Any) -> Task:
    """`unfreezes(record, run)`: whether a peer unfreezes the body after this round."""

    def on_round(record: ExchangeRecord, run: Any) -> None:
        if unfreezes(record, run):
            run.model[0].requires_grad_(True)

    return dataclasses.replace(THAWING, on_round=on_round, **more)


class Played:
    """A simulated run that is over, and what each round of each peer averaged."""

    def __init__(self, played: Task, peers: int = 3, late_s: float = 0.0, **settings: Any) -> None:
        wished = {"peers": peers, "period": PERIOD, "steps": STEPS, "device": "cpu", "link": "100mbit,5ms"}
        records, usual = list[Record](), Scenario.plain(Settings(**{**wished, **settings}))
        scenario = dataclasses.replace(
            usual,
            groups=(Group(peers=peers + (late_s > 0), link=usual.groups[0].link, step_s=0.04),),
            arrivals=((peers, late_s),) if late_s else (),
        )
        self.world = World(played, scenario, records.append)
        run_virtual(self.world.run(within_s=1000), seed=0)
        self.lives = self.world.lives
        self.sent: dict[str, dict[int, int]] = {}
        for record in records:
            if isinstance(record, ExchangeRecord) and not record.caught_up:
                self.sent.setdefault(record.peer, {})[record.version] = record.model_bytes // 4

    def is_one(self) -> None:
        assert all(life.error is None and life.result is not None and life.result.finished for life in self.lives)
        first, *others = [life.trainer.vector for life in self.lives]
        assert len(first) == HEAD + BODY
        assert all(torch.equal(first, other) for other in others)


def test_a_parameter_that_all_unfreeze_is_averaged_from_the_next_round_on() -> None:
    played = Played(task(lambda record, run: record.version == 4))
    played.is_one()
    rounds = {version: HEAD if version <= 4 else HEAD + BODY for version in range(1, 11)}
    assert played.sent == dict.fromkeys("012", rounds)


def test_peers_that_unfreeze_a_parameter_at_different_rounds_average_it_once_all_have() -> None:
    """Until then each one trains its own, and the average is of what they have come to."""
    played = Played(task(lambda record, run: record.version >= 2 + int(run.name[0]), optimizer=sgd), peers=2)
    played.is_one()
    assert played.sent["0"] == {version: HEAD if version <= 3 else HEAD + BODY for version in range(1, 11)}
    assert played.sent["1"] == played.sent["0"]


def sgd(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.05)


def test_a_parameter_that_half_of_the_peers_unfreeze_is_unfrozen_by_the_others_too() -> None:
    played = Played(task(lambda record, run: record.version >= 2 and run.name[0] in "02"))
    played.is_one()
    assert played.sent["1"] == {version: HEAD if version <= 3 else HEAD + BODY for version in range(1, 11)}
    assert played.lives[1].trainer.model[0].weight.requires_grad


def test_fewer_than_half_of_the_peers_cannot_unfreeze_a_parameter_of_the_others() -> None:
    played = Played(task(lambda record, run: record.version >= 2 and run.name[0] == "1"))
    assert all(life.error is None for life in played.lives)
    assert {elements for rounds in played.sent.values() for elements in rounds.values()} == {HEAD}
    assert not played.lives[0].trainer.model[0].weight.requires_grad
    assert all(life.peer.conversation.position().grown == () for life in played.lives)


@pytest.mark.parametrize("hostile", [0, 2], ids=["the coordinator", "a member"])
@pytest.mark.parametrize("lies", [(Wish,), (Granted,), (Wish, Granted)], ids=["wishes", "grants", "both"])
def test_a_member_that_tells_others_different_wishes_has_no_two_of_them_sum_vectors_of_different_lengths(
    lies: tuple[type, ...], hostile: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the run goes on, with what is frozen frozen or trained by all."""
    say, lengths = Channel.post, defaultdict[Any, dict[str, int]](dict)
    agreed = Growth.agreed

    def lie(channel: Channel, to: str, message: Any) -> None:
        lied = channel.endpoint.id == ID[hostile] and isinstance(message, lies) and to == ID[3]
        say(channel, to, dataclasses.replace(message, parameters=b"") if lied else message)

    async def noted(growth: Growth, attempt: Any, contribution: Any, state: Any) -> Any:
        contribution, state = await agreed(growth, attempt, contribution, state)
        lengths[attempt][growth._channel.endpoint.id] = len(contribution.vector)
        return contribution, state

    monkeypatch.setattr(Channel, "post", lie)
    monkeypatch.setattr(Growth, "agreed", noted)
    played = Played(task(lambda record, run: record.version == 4), peers=4)
    honest = {one for index, one in enumerate(ID[:4]) if index != hostile}
    for attempt, of in lengths.items():
        assert len({length for peer, length in of.items() if peer in honest}) <= 1, attempt
    for life in played.lives:
        assert life.error is None
        assert life.result is not None
        assert life.result.finished
    assert set[int]().union(*(of.values() for of in lengths.values())) >= {HEAD}


@pytest.mark.parametrize("late_s", one_in(2, [0.30, 0.36, 0.42, 0.48, 0.54, 0.9]))
def test_a_newcomer_trains_parameters_that_were_unfrozen_before_it_came(late_s: float) -> None:
    """Its own task would have unfrozen it after one round alone, which it may have missed."""
    played = Played(task(lambda record, run: record.version == 3), late_s=late_s)
    played.is_one()
    assert played.lives[3].trainer.model[0].weight.requires_grad
    assert HEAD + BODY in played.sent["3"].values()


def test_a_newcomer_is_told_of_a_trained_parameter_that_its_optimizer_lacks() -> None:
    def optimizer(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD([one for one in model.parameters() if one.requires_grad], lr=0.05)

    def on_round(record: ExchangeRecord, run: Any) -> None:
        if record.version == 3:
            run.model[0].requires_grad_(True)
            run.optimizer.add_param_group({"params": run.model[0].parameters()})

    played = Played(dataclasses.replace(THAWING, on_round=on_round, optimizer=optimizer), late_s=0.9)
    assert [life.error for life in played.lives[:3]] == [None] * 3
    said = str(played.lives[3].error)
    assert "the others train parameter '0.weight'" in said
    assert "give it all parameters from the beginning, frozen ones too" in said


def test_a_parameter_changed_before_it_was_unfrozen_ends_the_peer_in_one_line() -> None:
    def on_round(record: ExchangeRecord, run: Any) -> None:
        if record.version == 3:
            nn.init.zeros_(run.model[0].weight)
            run.model[0].requires_grad_(True)

    with pytest.raises(
        ValueError, match=r"^parameter '0\.weight' was changed before it was unfrozen[^\n]*unfreeze it first$"
    ):
        Played(dataclasses.replace(THAWING, on_round=on_round))


@pytest.mark.parametrize(
    "settings",
    [
        {"protocol": "gossip", "period": "1"},
        {"drift": "corrected"},
        {"inner": "averaged"},
    ],
    ids=str,
)
def test_unfreezing_a_parameter_that_cannot_be_averaged_ends_the_run_in_one_line(settings: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"^parameter '0\.weight' was frozen when the run began[^\n]*may be unfrozen$"):
        Played(THAWING, **settings)


def unfreezing_script(run: samovar.Run) -> Tensor:
    model = network()
    model[0].requires_grad_(False)
    optimizer = run.wrap(sgd(model.parameters()), model)
    for step, batch in enumerate(THAWING.data(run.part, run.parts)):
        if step == 7:  # amid a round
            model[0].requires_grad_(True)
        optimizer.zero_grad()
        THAWING.loss(model, batch).backward()
        optimizer.step()
    run.leave()
    return nn.utils.parameters_to_vector(model.parameters()).detach()


def test_scripts_may_unfreeze_amid_a_round(tmp_path: Path) -> None:
    one, other = together(tmp_path, [unfreezing_script, unfreezing_script], period="5")
    assert torch.equal(one, other)
    sent = {record.version: record.model_bytes // 4 for record in read_run(tmp_path / "0").exchanges}
    assert sent == {version: HEAD if version == 1 else HEAD + BODY for version in range(1, 11)}


# The layout


def first_layout() -> Layout:
    tensors = {name: torch.zeros(size) for name, size in {"a": 2, "b": 3, "c": 1, "d": 4, "buffer": 2}.items()}
    return Layout.of(tensors, frozen={"b", "d"})


def test_a_grown_layout_is_that_of_a_run_which_began_with_it() -> None:
    first = first_layout()
    assert [slot.name for slot in first.slots] == ["a", "c", "buffer"]
    assert [slot.name for slot in grown(first, ("d",)).slots] == ["a", "c", "d", "buffer"]
    assert [slot.name for slot in whole(first).slots] == ["a", "b", "c", "d", "buffer"]
    assert in_order(first, {"d", "b", "a"}) == ("b", "d")
    plain = Layout.of({"a": torch.zeros(2), "c": torch.zeros(1), "buffer": torch.zeros(2)})
    assert (plain, plain.digest) == (first, first.digest)


def test_a_vector_is_carried_to_a_longer_layout_and_back() -> None:
    first, after = first_layout(), grown(first_layout(), ("d",))
    vector = torch.arange(1.0, 6.0)
    assert carried(vector, first, after).tolist() == [1, 2, 3, 0, 0, 0, 0, 4, 5]
    filled = carried(vector, first, after, torch.full((9,), 7.0))
    assert filled.tolist() == [1, 2, 3, 7, 7, 7, 7, 4, 5]
    assert torch.equal(carried(filled, after, first), vector)
    assert carried(vector, first, first) is vector


@pytest.mark.parametrize("names", [(), ("b",), ("d",), ("b", "d")])
def test_names_are_the_same_after_their_way_as_bits(names: tuple[str, ...]) -> None:
    assert from_bits(first_layout(), to_bits(first_layout(), names)) == names


@pytest.mark.parametrize("bits", [b"\x04", b"\xff", b"\x00\x01"])
def test_bits_that_stand_for_no_parameter_are_refused(bits: bytes) -> None:
    with pytest.raises(ValueError, match="that this model has not"):
        from_bits(first_layout(), bits)
