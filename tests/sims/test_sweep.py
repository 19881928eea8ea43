"""The sweep and what it rests on: faults that do happen, places that are met, runs that are functions of a seed."""

import asyncio
import json
import os
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from mutant_list import Tree, named
from simulated import printed_under_hash_seed
from tiers import one_in, soaked

import samovar
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.local_sgd.rounds import (
    Committed,
)
from samovar.protocols.transport import Arrivals
from samovar.sims.conversations.simulation import Simulation, registered, simulation
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.sweeps import draw as drawing
from samovar.sims.sweeps import harsh, promises
from samovar.sims.sweeps import minimise as minimising
from samovar.sims.sweeps import sweep as sweeping
from samovar.sims.sweeps.draw import draw, shared_out
from samovar.sims.sweeps.sweep import PLACES, REQUIRED, SITES, TOO_RARE, judge_seed, sweep, unmet
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.event_log import Entry, Log, Observer
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.machine import Machine
from samovar.sims.world.network import Network

# ---- seeds

FOUND_BUGS = {
    1103: "a peer that had lost one coordinator never gave up the next one",
    1286: "the leader of a change went on with it though another's view had come while its own word was written",
    374: "a peer that had lost the coordinator joined anew, as others had vouched for it before it ended",
    753: "a hostile member turned a newcomer away without a word, and that gave no line",
    959: "a newcomer that one contact had sent elsewhere was turned away by another member, and began anew",
    1075: "parts that had come were dropped for those of a donor that was behind",
    2024: "a peer that came back took an earlier state, of a donor that had begun anew",
    2823: "the time that it took to gather kept out a newcomer for minutes",
    77021: "a peer that is joining may be told that it is let in no more",
    2187: "two led against each other for ever, as each promise came too late for its ballot",
    668: "a hostile proposal that was put off was an error of nobody's, and no fault of its sender",
    1718: "a contact introduced a newcomer that had ended to each new view, and so brought about the next one",
    2378: "a worker took part at its own clock while those that were ahead of it were away",
    2414: "a worker that came back while it read waited for itself to take part",
    2702: "a newcomer took part at clock 0 of a server that had lost sight of its workers",
    2804: "a checkpoint without a copy kept the server that found it from making a range",
    2813: "the head of a chain told nobody that its range was lost, so a worker read from its tail for ever",
    2642: "a hostile message that had waited for a range ended the handling of all that waited with it",
    3250: "a former acceptor that did not answer was waited for without end",
    3566: "before the start two halves of a view decided, one with its senior member, one by the other's death",
    3613: "a peer that summed with a mate that it did not reach any more took a mean that counted another twice",
    4419: "members of two generations each waited for one of the other to lead",
}
"""Seeds that find these again when what mended them is taken out, as mutants do."""


LONG = {374, 1103, 1075, 2024, 2823, 3613, 668, 1718, 2378, 2414, 2642, 2702, 2804, 2813}
"""These seeds take most of the time of all. Each bug that they found has a test with a short scenario."""


@pytest.mark.parametrize("seed", [soaked(seed) if seed in LONG else seed for seed in FOUND_BUGS])
def test_a_seed_that_found_a_bug_finds_it_no_more(seed: int) -> None:
    assert judge_seed(seed).broken is None


FOUND_IN_ALLREDUCE = {
    463: "a newcomer that waited while the run ended was told nothing",
    738: "members took a restarted peer, which only votes for its former life, for the coordinator",
    1223: "a latecomer that no member could answer was said to be left behind",
    1435: "a member that heard last of an earlier view forgot that it is not in the later one",
    2105: "nobody voted for a life that was let in and ended before it heard of that",
    2261: "a peer that nobody can dial was left alone before the start, and waited for ever for others to come",
    2722: "a member counted on a life that was over before it came, and waited for it for ever",
    2855: "members that reach each other through relays alone were asked to go on without one",
}
"""Seeds that do so with ``--protocol allreduce``."""


@pytest.mark.soak
@pytest.mark.parametrize("seed", FOUND_IN_ALLREDUCE)
def test_a_seed_of_allreduce_that_found_a_bug_finds_it_no_more(seed: int) -> None:
    assert judge_seed(seed, "allreduce").broken is None


@pytest.mark.parametrize("first", [31, *map(soaked, (1, 11, 21, 41, 51))])
def test_every_promise_holds_for_any_seed(first: int) -> None:
    """`samovar simulate --sweep 300 --seed 1` judges more of them."""
    wrong = {seed: verdict.broken for seed in range(first, first + 10) if (verdict := judge_seed(seed)).broken}
    assert not wrong


def test_a_place_that_a_sweep_never_met_is_named() -> None:
    own = simulation("allreduce").required
    assert unmet({"allreduce": 300}, Counter(REQUIRED + own)) == []
    assert unmet({"allreduce": 300}, Counter(REQUIRED[1:] + own[1:])) == [REQUIRED[0], own[0]]
    assert unmet({"allreduce": 299}, Counter()) == [], "a short one shows only that its seeds held"


def marked(call: str) -> dict[str, set[str]]:
    """The places marked by `call`, by folder of the protocols."""
    found = defaultdict(set)
    for path in (Path(samovar.__file__).parent / "protocols").rglob("*.py"):
        found[path.parent.name] |= set(re.findall(rf'{call}\("(.*?)"\)', path.read_text(encoding="utf-8")))
    return found


def test_a_sweep_knows_every_rare_place_of_the_protocols() -> None:
    """So that a place that is written later is required too, or is said to be too rare."""
    own = {name: simulation(name) for name in ("gossip", "parameter_server")}
    own["local_sgd"] = simulation("allreduce")
    for call, common, of_each in (
        ("sometimes", {*PLACES, *TOO_RARE}, {name: {*one.places, *one.too_rare} for name, one in own.items()}),
        ("buggify", {*SITES}, {name: {*one.sites} for name, one in own.items()}),
    ):
        found = marked(call)
        found["gossip"] |= found["swim"]  # a membership that no other conversation has
        assert set.union(*found.values()) == common.union(*of_each.values())
        for name, of_one in of_each.items():
            assert not common & of_one
            assert of_one <= found[name]


# ---- several conversations


@pytest.fixture
def other(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Another conversation beside local SGD, which says the same to its peers."""
    there = Simulation(
        checkers=(nobody_commits,),
        places=("a rare place",),
        sites=("a site",),
        out_of_reach=("two led at once",),
        draw=lambda chance, seed, groups: {"period": "3"},
        steps_an_exchange=lambda settings: 3,
    )
    known = {name: simulation(name) for name in registered()} | {"other": there}
    for module in (drawing, sweeping):
        monkeypatch.setattr(module, "simulation", known.__getitem__)
    for module in (harsh, promises, minimising):
        monkeypatch.setattr(module, "simulation_of", lambda settings: known["other"])
    monkeypatch.setattr(drawing, "registered", lambda: tuple(known))
    return there


def nobody_commits(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
    yield from (f"{life} did" for _, life, event in entries if isinstance(event, Committed))


def test_seeds_are_shared_out_among_all_conversations(other: Simulation) -> None:
    assert [shared_out(seed) for seed in range(5)] == ["allreduce", "gossip", "parameter_server", "other", "allreduce"]


def test_where_seeds_are_shared_out_only_common_places_are_required(other: Simulation) -> None:
    shared, alone = {"allreduce": 150, "other": 150}, {"other": 300}
    assert unmet(shared, Counter(REQUIRED)) == []
    assert unmet(shared, Counter(REQUIRED[1:])) == [REQUIRED[0]]
    assert unmet(alone, Counter(REQUIRED)) == ["a rare place", "buggify: a site"]
    assert unmet({"allreduce": 1, "other": 300}, Counter(REQUIRED)) == ["a rare place", "buggify: a site"]


def test_a_place_that_no_conversation_of_the_sweep_can_reach_is_not_required(other: Simulation) -> None:
    reached = Counter([*other.required, *(what for what in REQUIRED if what != "two led at once")])
    assert unmet({"other": 300}, reached) == []
    assert unmet({"allreduce": 1, "other": 300}, reached) == ["two led at once"]


def test_a_conversation_is_held_to_its_own_promises_and_draws_its_own_settings(
    other: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drawing, "simulation", lambda protocol: other)
    scenario = drawing.draw(3, "allreduce")
    assert scenario.settings.plain()["period"] == "3"
    verdict = judge(scenario)
    assert verdict.promise == "nobody commits"


def test_processes_judge_a_sweep_as_one_does() -> None:
    alone, together = ([(v.digest, v.broken) for v in sweep(range(18, 21), workers=n)] for n in (1, 2))
    assert alone == together


# ---- planted bugs


FINDERS = {
    "a result is committed without a quorum": ("what is committed more than half have", [2, 4, 1]),
    "an update counts once more in each generation": ("every contribution counts once", [8, 0, 6]),
    "a stale generation is accepted": ("nothing of an old generation is applied", [360, 323, 725]),
}
"""The promise that each mutant breaks, and seeds of which one shows it at least."""
FIND = """
import json, sys
from samovar.peers.machine.torch_imports import do_without_compiler
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.verdict import judge

do_without_compiler()
found = next(verdict for seed in map(int, sys.argv[1:]) if (verdict := judge(draw(seed, "allreduce"))).broken)
small = minimise(found, runs_max=20)
print(json.dumps([found.promise, small.promise, small.scenario.peers, len(small.scenario.faults)]))
"""


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Tree:
    return Tree(tmp_path_factory.mktemp("mutants"))


@pytest.mark.parametrize("breaks", one_in(3, FINDERS))
def test_a_planted_bug_is_found_and_made_small(breaks: str, tree: Tree) -> None:
    """`make mutants OPTIONS=--sweep` looks for each of the list in 300 seeds."""
    promise, seeds = FINDERS[breaks]
    mutant = named(breaks)
    tree.plant(mutant)
    _, out = tree.run(FIND, *map(str, seeds), limit_s=200)
    tree.restore(mutant)
    found, smallest, peers, faults = json.loads(out)
    assert (found, smallest) == (promise, promise)
    assert peers <= 8
    assert faults <= 3


# ---- chance


def drawn_order(seed: int, *, disturbed: bool = False) -> list[int]:
    """In which order 20 timers of one machine go off that are due at the same time."""

    async def main() -> list[int]:
        seen: list[int] = []
        loop = asyncio.get_running_loop()
        machine, other = (Machine(name, lambda handle: None, seed) for name in ("0.0", "1.0"))
        for number in range(20):
            loop.call_at(1.0, seen.append, number, context=machine.context)
            if disturbed:
                loop.call_at(1.0, lambda: None, context=other.context)
        await asyncio.sleep(2)
        return seen

    return run_virtual(main(), seed=seed)


def test_events_due_at_the_same_time_go_in_an_order_that_the_seed_draws() -> None:
    assert drawn_order(1) == drawn_order(1)
    orders = {tuple(drawn_order(seed)) for seed in range(5)}
    assert len(orders) == 5
    assert tuple(range(20)) not in orders


DIGESTS = (
    "from samovar.peers.machine.torch_imports import do_without_compiler; do_without_compiler();"
    "from samovar.sims.sweeps.draw import draw;"
    "from samovar.sims.sweeps.verdict import judge;"
    "print(*(judge(draw(seed)).digest for seed in (14, 16)))"
)


def test_a_seed_gives_the_same_digest_under_any_hash_seed_and_no_other_seed_gives_it() -> None:
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    told = printed_under_hash_seed(hash_seed, DIGESTS).split()
    assert told == [judge(draw(seed)).digest for seed in (14, 16)], "this process has another hash seed"
    assert len(set(told)) == 2


def test_one_more_draw_in_one_place_does_not_reshuffle_the_rest() -> None:
    """Neither the jitter of another way, nor which of two timers of another machine goes off first."""

    def heard(*sent: str) -> list[tuple[str, float]]:
        """The peers that are heard, and when."""

        async def main() -> list[tuple[str, float]]:
            network, times = Network(LinkSpec(bandwidth_Bps=1e15, latency_s=0.1, jitter_s=1.0), seed=1), []
            clock = asyncio.get_running_loop().time
            for name in "abc":
                told = Arrivals(lambda sender, *_: times.append((sender, clock())), lambda _: None, lambda *_: None)
                network.open(name, told)
                for other in "abc":
                    network.doors.admit(name, other)
            for sender, to in sent:
                network.carry(sender, to, b"", b"")
            await asyncio.sleep(5)
            return times

        return run_virtual(main())

    (alone,) = heard("ab")
    assert alone in [(who, pytest.approx(when)) for who, when in heard("cb", "bc", "ab")]
    assert drawn_order(1, disturbed=True) == drawn_order(1)


def observer(seed: int, site: str = "a site", until_s: float = 9.0) -> list[bool]:
    async def main() -> list[bool]:
        eye, fired = Observer(Log(), "0.0", seed, buggify_until_s=until_s), []
        for _ in range(1000):
            fired.append(eye.buggify(site))
            await asyncio.sleep(0.01)
        return fired

    return run_virtual(main())


def test_our_own_code_is_disturbed_now_and_then_at_some_sites_until_all_is_healed() -> None:
    runs = [observer(seed) for seed in range(40)]
    active = [run for run in runs if any(run)]
    assert 4 <= len(active) <= 16, "a quarter of all runs"
    assert all(20 <= sum(run) <= 80 for run in active), "one visit in twenty"
    assert not any(any(run[900:]) for run in runs)
    assert observer(3, until_s=0.0) == [False] * 1000
    assert [site for site in SITES if any(any(observer(seed, site)) for seed in range(30))] == [*SITES]


def test_the_time_of_day_may_jump_an_hour_and_nothing_comes_of_it() -> None:
    scenario = replace(draw(14), faults=())
    jumps = tuple(Fault(kind=Kind.CLOCK, at_s=at_s, factor=factor) for at_s, factor in ((0.5, 3600.0), (2.0, -7200.0)))
    seen = [judge(replace(scenario, faults=faults)) for faults in ((), jumps)]
    assert [verdict.reached["fault: clock"] for verdict in seen] == [0, 2]
    assert seen[0].digest == seen[1].digest
