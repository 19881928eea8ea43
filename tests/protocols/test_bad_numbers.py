"""One peer's huge or non-finite numbers: it is found, named and goes alone, whatever averages and by what schedule."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from company import Company, Walker, assert_one_truth, moved, value
from simulated import no_complaints, simulate  # noqa: F401
from test_site_periods import of_a_site
from tiers import soaked

from samovar.aggregation.evidence import FIELDS, Brought, brought, guilty, shifts
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.aggregation.schedules.schedule import Op
from samovar.aggregation.vector import Part
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.model_copy import Diverged
from samovar.peers.training.trainer import Trainer
from samovar.protocols.collectives.allreduce import Allreduce
from samovar.protocols.collectives.shown import _Looking
from samovar.protocols.local_sgd.local_sgd import Contribution
from samovar.protocols.shared_memory.machine import machine
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

LARGEST = torch.finfo(torch.float32).max
Bad = Callable[[Contribution], Contribution]


class Unchecked(Contribution):
    """Of a peer that does not look at its own numbers, or in whose memory they change after that."""

    __slots__ = ()

    def check(self, *messages: torch.Tensor) -> None: ...


def element(number: float) -> Bad:
    def bad(brought: Contribution) -> Contribution:
        brought.vector[3] = number
        return brought

    return bad


BAD: dict[str, Bad] = {
    "nan": element(float("nan")),
    "infinite": element(float("-inf")),
    "beyond the range": element(LARGEST / 2),
    "huge": element(1e12),
    "a signal": lambda brought: brought._replace(loss=float("nan")),
    "a huge signal": lambda brought: brought._replace(learning_rate=LARGEST),
}
SAID = {
    "nan": "not finite",
    "a signal": "not finite",
    "beyond the range": "norm-limit|not finite",
    "huge": "norm-limit",
}
FEW = tuple(SAID)


def brings(walker: Walker, bad: Bad, *, checks: bool = False, round_: int = 1) -> None:
    """From the round after that one on, if `checks` is False without a look at it."""
    honest = walker.brings

    def instead() -> Contribution:
        brought = honest()
        if walker.sgd.state.round < round_:
            return brought
        if not checks:
            brought = Unchecked(*brought)
        return bad(brought)

    walker.brings = instead  # type: ignore[method-assign]


def assert_goes_alone(company: Company, culprit: int, said: str) -> None:
    """Without it the others go on to the end, and all know whose numbers they were."""
    honest = [walker for walker in company.walkers if walker.index != culprit]
    company.agree(honest)
    assert_one_truth(company)
    for walker in honest:
        removals = [removal for removal in walker.membership.removals if removal.peer == f"p{culprit}"]
        assert [removal.peer for removal in walker.membership.removals] == [f"p{culprit}"]
        assert re.search(said, removals[0].why), removals
    alone = company[culprit]
    assert not alone.finished or alone.bits == honest[0].bits, "it may come back and fetch what the others came to"


def played(company: Company, kind: str, culprit: int = 3) -> Company:
    brings(company[culprit], BAD[kind])
    simulate(company.run())
    assert_goes_alone(company, culprit, SAID[kind])
    return company


@pytest.mark.parametrize("kind", BAD)
def test_a_peer_that_checks_its_own_numbers_goes_alone_and_says_why(kind: str) -> None:
    company = Company(4, rounds=3)
    brings(company[3], BAD[kind], checks=True)
    simulate(company.run())
    assert_goes_alone(company, 3, "norm-limit" if kind == "huge" else "not finite|finite loss|beyond the range")
    if kind != "huge":  # its own model alone does not tell it that
        assert isinstance(company[3].error, ValueError)
        assert str(company[3].error) in company[0].membership.removals[0].why


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("schedule", SCHEDULES)
def test_bad_numbers_are_found_in_every_schedule_and_the_others_go_on(schedule: str, kind: str) -> None:
    company = played(Company(4, rounds=3, schedule=schedule), kind)
    honest = company.walkers[:3]
    assert value(company[0]) == pytest.approx(moved(company.walkers) + 2 * moved(honest), rel=1e-5)


@pytest.mark.parametrize("kind", FEW)
@pytest.mark.parametrize("codec", ["int8", "top_k:0.5", *map(soaked, ("bf16", "qsgd:7:l2", "sign", "power_sgd:1"))])
def test_bad_numbers_are_found_with_every_kind_of_codec(codec: str, kind: str) -> None:
    """A peer that passes on what is not finite, or encodes a sum that is not, is not to blame."""
    company = Company(4, rounds=3, size=600, schedule="double_tree", codec=codec)
    brings(company[3], BAD[kind])
    simulate(company.run())
    assert_goes_alone(company, 3, f"{SAID[kind]}|not finite")


@pytest.mark.parametrize("kind", ["nan", "huge"])
@pytest.mark.parametrize("world", [3, soaked(5)])
@pytest.mark.parametrize("culprit", [0, 1])
def test_a_peer_of_any_rank_with_bad_numbers_goes_alone(world: int, culprit: int, kind: str) -> None:
    """The coordinator, too."""
    played(Company(world, rounds=3, size=4), kind, culprit)


@pytest.mark.parametrize("kind", FEW)
def test_bad_numbers_are_found_in_a_run_of_fragments(kind: str) -> None:
    company = Company(4, rounds=4, fragments=2)
    brings(company[3], BAD[kind])
    simulate(company.run())
    assert_goes_alone(company, 3, f"{SAID[kind]}|not finite")


@pytest.mark.parametrize("stride", [float("nan"), 1e12])
@pytest.mark.parametrize("schedule", ["ring", "sharded"])
def test_bad_numbers_are_found_in_buckets(schedule: str, stride: float) -> None:
    company = Company(4, rounds=3, schedule=schedule, buckets=(Part(0, 4), Part(4, 10)))
    brings(company[3], lambda brought: brought)
    company[3].stride = stride
    simulate(company.run())
    assert_goes_alone(company, 3, "norm-limit|not finite")


@pytest.mark.skipif(not machine(), reason="this machine has no memory to share")
@pytest.mark.parametrize(("size", "kind"), [(10, "nan"), (10, "a signal"), (20_000, "huge")])
def test_bad_numbers_are_found_in_shared_memory(size: int, kind: str) -> None:
    played(Company(4, rounds=3, size=size, schedule="sharded", machine="one"), kind)


def test_bad_numbers_of_a_peer_that_the_round_needs_are_named() -> None:
    """Of two one cannot go on alone, unless the other goes of its own will."""
    company = Company(2, rounds=3)
    brings(company[1], BAD["huge"])
    simulate(company.run())
    assert "peer p1 spoils round 2" in str(company[1].error)
    company.agree([company[0]])


def test_a_round_counts_when_most_models_are_as_large() -> None:
    company = Company(4, rounds=3)
    for walker in company.walkers:
        walker.stride *= 1e9
    simulate(company.run())
    company.agree()
    assert value(company[0]) == pytest.approx(3 * moved(company.walkers), rel=1e-5)
    assert not company[0].membership.removals


def spoils(monkeypatch: pytest.MonkeyPatch, op: Op, times: int, to: Sequence[int] = range(4)) -> None:
    """So often p2 sends other numbers than its own to these ranks, as it does not when they are only looked at."""
    honest, left = Allreduce._payload, [times]

    def payload(self: Any, run: Any, array: Any, at: int, until: int) -> Any:
        lies = self._channel.endpoint.id == "p2" and run.op is op and run.peer in to and self._tail
        if lies and not isinstance(self, _Looking) and left[0]:
            left[0] -= 1
            array = array.copy()
            array[at] = float("nan")
        return honest(self, run, array, at, until)

    monkeypatch.setattr(Allreduce, "_payload", payload)


@pytest.mark.parametrize("schedule", ["ring", "naive", "double_tree"])
def test_a_single_wrong_sum_costs_no_peer_the_run(schedule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spoils(monkeypatch, Op.ADD, 1)
    company = simulate(Company(4, rounds=3, size=4000, schedule=schedule).run())
    company.agree()
    assert value(company[0]) == pytest.approx(3 * moved(company.walkers), rel=1e-5)
    assert not company[0].membership.removals


def test_the_only_peer_with_a_bad_sum_fetches_the_result_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    spoils(monkeypatch, Op.COPY, 1, to=[0])
    company = simulate(Company(4, rounds=3, size=4000, schedule="sharded").run())
    company.agree()
    assert_one_truth(company)
    assert [walker.outcomes[0].caught_up for walker in company.walkers] == [True, False, False, False]
    assert not company[0].membership.removals


@pytest.mark.parametrize(
    ("op", "said"), [(Op.ADD, "its own numbers, which are not finite"), (Op.COPY, "the sum of the part that it owns")]
)
@pytest.mark.parametrize("schedule", ["ring", "sharded"])
def test_a_liar_about_its_own_numbers_is_named(
    schedule: str, op: Op, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoils(monkeypatch, op, 10**6)
    company = simulate(Company(4, rounds=3, size=4000, schedule=schedule).run())
    assert_goes_alone(company, 2, said)


@pytest.mark.parametrize("stride", [float("nan"), 1e12])
def test_bad_numbers_are_found_in_the_sums_of_sites(stride: float) -> None:
    company = of_a_site(4)
    brings(company[3], lambda brought: brought, round_=0)
    company[3].stride = stride
    simulate(company.run())
    assert_goes_alone(company, 3, "norm-limit|not finite")
    assert [walker.means[0][0] for walker in company.walkers[:3]] == [2.0] * 3, "of 1, 2 and 3"


def told(world: int, lies: dict[int, float], guilty_ranks: Sequence[int] = ()) -> torch.Tensor:
    """All have brought 1 in each part, the guilty ones 1e20 in part 0; liars say the same of all."""
    statements = torch.ones(world, shifts(world), world, FIELDS, dtype=torch.float64)
    for shift in range(shifts(world)):
        statements[shift, shift, list(guilty_ranks), :2] = 1e20
    for liar, number in lies.items():
        statements[liar, :, :, :2] = number
    return statements


@pytest.mark.parametrize("world", [3, 4, 7])
@pytest.mark.parametrize("liar", [0, 1, 2])
def test_one_witness_alone_convicts_no_peer(world: int, liar: int) -> None:
    for number in (0.0, 1e20, float("inf")):
        found = brought(told(world, {liar: number}))
        assert all(one.norm <= world**0.5 and one.peak <= 1.0 for one in found)


@pytest.mark.parametrize("liar", [0, 1, 2])
def test_one_of_three_witnesses_saves_no_guilty_peer(liar: int) -> None:
    found = brought(told(4, {liar: 0.0}, guilty_ranks=[3]))
    assert [rank for rank, one in enumerate(found) if one.norm > 1e6] == [3]


def test_contributions_that_cannot_be_right_are_named() -> None:
    honest, huge = Brought(1.0, 1.0, 1.0), Brought(1e9, 1e9, 1.0)

    def found(*all_brought: Brought) -> list[int]:
        return list(guilty(all_brought, norm_max=1e6, dtype=torch.float32))

    assert found(honest, huge, honest) == [1]
    assert found(honest, huge, huge) == []
    assert found(huge, Brought(1.0, float("inf"), 1.0), huge) == [1]
    assert found(honest, Brought(0.0, 0.0, -1.0), honest) == [1]
    assert found(honest, Brought(1.0, LARGEST / 2, LARGEST / 2), honest) == [1]


def test_the_others_are_told_why_a_peer_diverged_in_its_local_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    train = Trainer.train

    def diverges(self: Trainer, *how: Any, **more: Any) -> int:
        if self.hooks.run.part == 1 and self.steps > 3:
            raise Diverged("the loss is not finite any more")
        return train(self, *how, **more)

    monkeypatch.setattr(Trainer, "train", diverges)
    settings = Settings(peers=4, period="2", steps=12, patience_s=1.0, device="cpu")
    world = World(toy_task(), Scenario.plain(settings))
    with pytest.raises(Diverged):
        run_virtual(world.run(within_s=300), seed=1)
    honest = [life for life in world.lives if life.result is not None]
    assert len(honest) == 3
    for life in honest:
        assert [removal.why for removal in life.peer.membership.removals] == ["left: the loss is not finite any more"]


@pytest.mark.parametrize("schedule", ["ring", "sharded"])
def test_bad_numbers_are_found_though_two_peers_cannot_reach_each_other(schedule: str) -> None:
    async def play() -> None:
        company = Company(5, rounds=1000, size=10, link="10mbit,40ms", schedule=schedule)
        await company.gathered(2)
        company.part(["p2"], ["p3"])
        await company.until(lambda: company[0].membership.view.apart != ())
        culprit = company[4]
        brings, due = culprit.brings, [True]

        def huge() -> Contribution:
            brought = brings()
            return brought._replace(vector=torch.full_like(brought.vector, 1e30)) if due and due.pop() else brought

        culprit.brings = huge  # type: ignore[method-assign]
        await company.until(lambda: company[0].membership.removals != [])
        reached = company[0].sgd.state.round + 3
        await company.until(lambda: company[0].sgd.state.round >= reached)
        assert [(removal.name, removal.why[:35]) for removal in company[0].membership.removals] == [
            ("p4", "it brought a model of norm 3.16e+30")
        ]
        await company.over()

    simulate(play(), within_s=2_000.0)
