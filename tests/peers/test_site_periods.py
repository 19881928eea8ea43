"""Averages of a site between those of all: who takes which mean, whoever comes, dies, stands still or goes on."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from company import Company, Walker
from live import samovar as samovar_verb
from loops import HERE, begin
from simulated import simulate
from test_outer_runs import UNION, bits
from tiers import one_in, soaked

import samovar
from samovar.__main__ import main
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.peers.settings.groups import without_groups
from samovar.peers.settings.toml_file import read_toml
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.protocols.collectives.reducer import Reducer
from samovar.protocols.local_sgd import site_averaging as site_rounds_module
from samovar.protocols.local_sgd.rounds import Committed, SiteCommitted
from samovar.protocols.local_sgd.site_averaging import Hold, SiteRounds, Stand
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.scenarios.text import scenario_text
from samovar.sims.sweeps.promises import broken
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

SITED = {
    "peers": 4, "site": "east;east;west;west", "site_period": 2, "period": "8", "steps": 48, "device": "cpu",
    "checkpoint_every_s": 0.0, "link": "1mbit,50ms", "patience_s": 1.0, "step_time": "20ms",
}  # fmt: skip


def play(*faults: Fault, late: float = 0.0, **settings: Any) -> World:
    """Its promises are held against its log."""
    scenario = dataclasses.replace(Scenario.plain(Settings(**{**SITED, **settings})), faults=faults)
    if late:
        group = dataclasses.replace(scenario.groups[0], peers=scenario.peers + 1)
        scenario = dataclasses.replace(scenario, groups=(group,), arrivals=((scenario.peers, late),))
    world = World(load_task(UNION), scenario)
    run_virtual(world.run(), seed=scenario.settings.seed)
    assert broken(scenario, world.log.entries) is None
    return world


def taken(world: World) -> dict[tuple[int, int], dict[str, bytes]]:
    """At each turn of each round, what each life took."""
    means: dict[tuple[int, int], dict[str, bytes]] = defaultdict(dict)
    for _, life, event in world.log.entries:
        if isinstance(event, SiteCommitted):
            means[event.attempt[1:]][life] = event.vector.numpy().tobytes()
    return means


def finished(world: World) -> list[str]:
    return [life.name for life in world.lives if life.result is not None and life.result.finished]


# What comes of it


def test_sites_agree_only_at_the_global_round() -> None:
    world = play()
    means = taken(world)
    assert list(means) == [(round_, turn) for round_ in range(1, 7) for turn in (1, 2, 3)]
    for at_turn in means.values():
        assert set(at_turn) == {"0.0", "1.0", "2.0", "3.0"}
        assert at_turn["0.0"] == at_turn["1.0"] != at_turn["2.0"] == at_turn["3.0"]
    committed = defaultdict(set)
    for _, _, event in world.log.entries:
        if isinstance(event, Committed):
            committed[event.round].add(event.vector.numpy().tobytes())
    assert [len(models) for models in committed.values()] == [1] * 6


@pytest.mark.parametrize(("period", "site_period"), [soaked(8, 2), (7, 3), (5, 4)])
def test_site_averages_equal_the_computation_by_hand(period: int, site_period: int) -> None:
    task = load_task(UNION)
    ones = [Trainer(task, seed=0, data_shard=part, data_shards=4, device=torch.device("cpu")) for part in range(4)]

    def mean(these: list[Trainer]) -> torch.Tensor:
        return torch.stack([one.vector for one in these]).mean(0)

    for step in range(1, 4 * period + 1):
        for one in ones:
            one.train(1)
        sites = [ones] if step % period == 0 else [ones[:2], ones[2:]] if step % period % site_period == 0 else []
        for site in sites:
            together_ = mean(site)
            for one in site:
                one.copy.load(together_)
    shape = {"period": str(period), "site_period": site_period, "steps": 4 * period}
    lives = play(**shape).lives
    assert torch.allclose(lives[0].peer.conversation.state.vector, mean(ones), atol=1e-6)
    flat = play(**shape | {"site_period": None}).lives
    ours, theirs = (one[0].peer.conversation.state.vector for one in (lives, flat))
    assert not torch.allclose(ours, theirs, atol=1e-4), "it does something"


@pytest.mark.parametrize("wished", [{"outer": "nesterov", "codec": "top_k:0.1", "inner": "reset"}])
def test_outer_steps_codecs_and_resets_are_of_the_global_round_only(wished: dict[str, str]) -> None:
    world = play(**wished)
    assert all(len(set(at_turn.values())) == 2 for at_turn in taken(world).values())
    assert len({bits(life) for life in world.lives}) == 1


def test_an_adaptive_period_goes_with_sites() -> None:
    world = play(period="adaptive", period_initial=8, period_block_s=1.0, steps=96)
    rounds = Counter(round_ for round_, _ in taken(world))
    assert rounds[1] == 3
    assert min(rounds.values()) < 3, "fewer turns as the period falls"


# Peers that come, die, stand still


@pytest.mark.parametrize("at_step", one_in(4, range(10, 18, 2)))
def test_a_killed_peer_never_stalls_its_sites_round(at_step: int) -> None:
    world = play(Fault(kind=Kind.CRASH, who=(1,), at_step=at_step))
    assert finished(world) == ["0.0", "2.0", "3.0"]
    assert len({bits(life) for life in world.lives if life.index != 1}) == 1
    assert max(taken(world)) == (6, 3), "the other site goes on as before"


@pytest.mark.parametrize("at_step", one_in(4, range(9, 17, 2)))
def test_the_survivors_of_a_site_go_on_with_one_mean(at_step: int) -> None:
    world = play(Fault(kind=Kind.CRASH, who=(2,), at_step=at_step), site="here", period="8")
    means = taken(world)
    last = {life: mean for life, mean in means[6, 3].items() if life != "2.0"}
    assert set(last) == {"0.0", "1.0", "3.0"}
    assert len(set(last.values())) == 1


@pytest.mark.parametrize(("kind", "at_s"), [(Kind.PAUSE, 1.26), soaked(Kind.PAUSE, 1.0), soaked(Kind.RESTART, 1.13)])
def test_a_paused_or_restarted_peer_comes_back_into_its_site(kind: Kind, at_s: float) -> None:
    world = play(Fault(kind=kind, who=(1,), at_s=at_s, for_s=2.5), steps=160)
    assert len(finished(world)) == 4
    assert len({bits(life) for life in world.lives if life.name in finished(world)}) == 1
    assert len(taken(world)[20, 3]) == 4, "all take part again"


def test_a_latecomer_begins_from_the_global_state_and_takes_part() -> None:
    world = play(late=0.5, steps=48)
    assert len(finished(world)) == 5
    last = taken(world)[6, 3]
    assert len(last) == 5
    assert last["4.0"] == last["0.0"], "of five peers it is at the first one's site"


class Stepper(Walker):
    """Averages at the turns of its first round only, from `turns` on, and keeps what it goes on from."""

    turns: tuple[int, ...] = (1,)

    async def step(self) -> None:
        self.means: list[torch.Tensor] = []
        vector = self.sgd.state.vector + self.stride
        for turn in self.turns:
            brought = self.brings()._replace(vector=vector)
            vector = await self.sgd.average_at_site(brought, turn) + self.stride
            self.means.append(vector - self.stride)
        self.outcomes.append(await self.sgd.average(self.brings()._replace(vector=vector)))


class Steppers(Company):
    def walker(self, index: int, life: int = 0) -> Walker:
        return Stepper(self, index, float(index + 1), 1.0, 1.0, life)


def of_a_site(n: int) -> Steppers:
    return Steppers(n, rounds=1, sites=("here",))


def test_a_peer_skips_a_turn_that_the_others_have_passed() -> None:
    """As peers of a run that was stopped amid a round, each at another step, and is resumed."""
    company = of_a_site(3)
    company[0].turns, company[1].turns, company[2].turns = (1, 2, 3), (2, 3), ()
    company[1].stride = 5.0
    simulate(company.run(), within_s=30)
    company.agree()
    zero, one = company[0].means, company[1].means
    assert torch.equal(zero[0], torch.full((10,), 1.0)), "turn 1 was over, and its model is its own"
    assert torch.equal(zero[1], one[0])
    assert torch.equal(zero[1], torch.full((10,), 3.5)), "of 1 + 1 and 5"
    assert torch.equal(zero[2], one[1])


def test_the_mean_that_a_dead_member_took_is_taken_by_all_that_hold_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peer 2 hears that all hold the mean, but nobody hears it of peer 2, who dies."""
    company, tell = of_a_site(3), SiteRounds._tell

    def mute(self: SiteRounds, peers: Any, message: Any) -> None:
        if not (self._channel.endpoint.id == "p2" and isinstance(message, Hold)):
            tell(self, peers, message)

    async def main() -> None:
        company.start()
        await company.until(lambda: bool(getattr(company[2], "means", None)))
        company[2].crash()
        await company.ended()

    monkeypatch.setattr(SiteRounds, "_tell", mute)
    simulate(main())
    company.agree([company[0], company[1]])
    assert [walker.means[0][0] for walker in company.walkers] == [2.0] * 3, "of 1, 2 and 3"


def get_stuck(monkeypatch: pytest.MonkeyPatch, peers: set[str]) -> None:
    """Each of `peers` sums once and does not come to what it summed."""
    sum_among = Reducer.sum_among

    async def summed(self: Reducer, *turn: Any) -> torch.Tensor:
        total = await sum_among(self, *turn)
        if self._channel.endpoint.id in peers:
            peers.remove(self._channel.endpoint.id)
            await asyncio.get_running_loop().create_future()
        return total

    monkeypatch.setattr(Reducer, "sum_among", summed)


def test_a_mean_that_one_member_may_lack_is_summed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers 0 and 1 hold the mean of four; 2 dies, and 3 goes on, before they have come to it."""
    company = of_a_site(4)
    get_stuck(monkeypatch, {"p2", "p3"})

    async def main() -> None:
        company.start()
        await company.until(lambda: all(company[index].sgd._sites._mine.mark for index in (0, 1)))
        company[2].crash()
        await company.ended()

    simulate(main())
    left = [company[index] for index in (0, 1, 3)]
    company.agree(left)
    assert [walker.means[0][0] for walker in left] == [pytest.approx(7 / 3)] * 3, "of 1, 2 and 4"


def test_a_member_back_in_a_passed_turn_takes_no_mean_that_the_others_summed_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Peer 2 holds the mean of three, which peer 1 has not come to when 2 is given up; so 0 and 1 sum anew, and have
    taken the means of more turns since when 2 is back."""
    company = of_a_site(3)
    get_stuck(monkeypatch, {"p1"})
    company[0].turns = company[1].turns = tuple(range(1, 80))

    async def main() -> None:
        company.start()
        await company.until(lambda: bool(company[2].sgd._sites._mine.mark))
        company.part(("p2",), ("p0", "p1"))
        await company.until(lambda: len(getattr(company[0], "means", ())) > 3)
        company.heal()
        await company.ended()

    simulate(main(), within_s=60)
    company.agree()
    assert company[0].means[0][0] == 1.5, "of 1 and 2"
    assert company[2].means[0][0] == 3.0, "its own: the others' parts are in another mean"


def test_means_that_differ_are_taken_by_no_peer(monkeypatch: pytest.MonkeyPatch) -> None:
    marks = iter(range(1, 100))
    monkeypatch.setattr(site_rounds_module, "fingerprint", lambda total: next(marks))
    company = simulate(of_a_site(3).run(), within_s=30)
    company.agree()
    assert [walker.means[0][0] for walker in company.walkers] == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("liar", [0, 2])
def test_a_mate_that_tells_others_different_turns_stalls_no_peer(liar: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It tells one mate that it is past this turn, and all others the truth: they do not sum among the same peers."""
    company, told = of_a_site(4), list[Stand]()
    honest = SiteRounds._tell

    def tell(self: SiteRounds, peers: tuple[str, ...], message: Stand | Hold) -> None:
        if self._channel.endpoint.id == f"p{liar}" and isinstance(message, Stand) and message.turn == 1:
            told.append(dataclasses.replace(message, turn=site_rounds_module.PAST))
            self._channel.post("p1", told[-1])
        honest(self, peers, message)

    monkeypatch.setattr(SiteRounds, "_tell", tell)
    simulate(company.run(), within_s=30)
    assert told
    company.agree()


# Resumed


# How it is asked for

SITES = """
site_period = 2
period = 8
[[groups]]
peers = 2
site = "east"
[[groups]]
peers = 1
site = "west"
"""


def test_groups_of_a_file_name_the_site_of_each_peer(tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(SITES)
    settings = Settings.read(tmp_path / "sites.toml", {})
    assert (settings.peers, settings.site, settings.link) == (3, "east;east;west", None)
    assert [settings.of_peer(index).site for index in range(3)] == ["east", "east", "west"]
    (tmp_path / "odd.toml").write_text(SITES.replace('"west"', '"west;south"'))
    with pytest.raises(ValueError, match="line 9: site: must be the name of one site, got 'west;south'"):
        without_groups(read_toml(tmp_path / "odd.toml"), {})


def test_a_scenario_names_sites_and_reads_as_written(tmp_path: Path) -> None:
    text = "[settings]\nsite_period = 2\nperiod = 8\n" + SITES[SITES.index("[[groups]]") :]
    (tmp_path / "scenario.toml").write_text(text)
    scenario = read_scenario(tmp_path / "scenario.toml").scenario
    assert scenario.settings.site == "east;east;west"
    (tmp_path / "again.toml").write_text(scenario_text(scenario))
    assert read_scenario(tmp_path / "again.toml").scenario == scenario


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"site": None}, "site_period needs to know who is where: say so with --site or in"),
        ({"site_period": 0}, "site_period must be a whole number from 1 to 1000000, got 0"),
        ({"site_period": 1.5}, "site_period must be a whole number from 1 to 1000000, got 1.5"),
        ({"site_period": 8}, "site_period must be below the period, 8, got 8"),
        ({"site": "a;;b"}, "site must be the name of a site, without a comma, or several with semicolons"),
        ({"site": ""}, "site must be the name of a site"),
        ({"period": "auto"}, "site_period cannot be with period auto, which looks at how far single peers go"),
        ({"fragments": 2}, "site_period cannot be with fragments: leave out one"),
        ({"overlap": True}, "site_period cannot be with overlap: leave out one"),
        ({"pace": "own"}, "site_period cannot be with pace own: leave out one"),
        ({"average": "gradients", "period": "1"}, "site_period is for averages of models, not of gradients, got 2"),
    ],
)
def test_bad_settings_of_sites_are_one_clear_line(wished: dict[str, object], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Settings(**{"site_period": 2, "period": "8", "site": "a;b", **wished})


@pytest.mark.parametrize(
    ("wished", "said"),
    [
        ({"site": "paris"}, 'all 4 peers are at one site, "paris": each average of a site is one of all peers'),
        ({"site": "paris;paris"}, 'all 4 peers are at one site, "paris": each average of a site is one of all peers'),
        ({"site": "a;b;c;d"}, "no two peers are at one site: --site-period does nothing"),
        ({"site": "paris;rome", "site_period": None}, "--site does nothing without --site-period"),
        ({"site": "paris;rome"}, ""),
        ({"site": None, "site_period": None}, ""),
    ],
)
def test_sites_that_do_nothing_are_told_of_in_one_line(wished: dict[str, object], said: str, tmp_path: Path) -> None:
    settings = {"peers": 4, "site_period": 2, "period": "4", "steps": 4, **wished}
    assert (made := Settings(**settings)).own.idle_here(made) == said
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items() if value is not None]
    shown = CliRunner().invoke(main, ["simulate", str(UNION), *flags, "--no-report", f"--run={tmp_path / 'run'}"])
    assert shown.exit_code == 0, shown.output
    assert said in shown.output
    assert len(re.findall(r"[ -]site.*", shown.output)) == bool(said)


def test_a_newcomer_without_a_site_is_told_to_name_one() -> None:
    run = Settings(site_period=2, period="8", site="a;b").agreed_json()
    with pytest.raises(SettingsError, match="say so with --site"):
        Settings().with_agreed(run)
    assert Settings(site="c").with_agreed(run).plain()["site_period"] == 2


# Real processes


def test_scripts_average_with_their_site(tmp_path: Path) -> None:
    """Two peers of one site, which all see the same turns: after each they have the same weights."""

    def loop(run: Any) -> list[bytes]:
        model = torch.nn.Linear(3, 1)
        optimizer = run.wrap(torch.optim.SGD(model.parameters(), lr=0.1), model)
        torch.manual_seed(run.part)
        inputs, seen = torch.randn(4, 3), []
        for _ in range(8):
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            seen.append(model.weight.detach().numpy().tobytes())
        run.leave()
        return seen

    founder = begin(tmp_path / "0", peers=2, period=8, site_period=3, site="here")
    way_in = founder.invitation
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(lambda: loop(samovar.join(**way_in, run=tmp_path / "1", listen=HERE, site="here")))
        one, other = loop(founder), second.result()
    alike = [mine == theirs for mine, theirs in zip(one, other, strict=True)]
    assert alike == [False, False, True, False, False, True, False, True]


def test_real_peers_of_two_sites_train_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "sites.toml").write_text(SITES.replace("peers = 1", "peers = 2"))
    ended = samovar_verb(tmp_path, "train", UNION, "--config", "sites.toml", "--steps", 32, "--no-report", "--json")
    assert ended.code == 0, ended.err
    assert ended.result["rounds"] == 4
    assert "one site" not in ended.err


def test_train_says_that_peers_of_one_site_wait_for_others_to_join_from_elsewhere(tmp_path: Path) -> None:
    sites = ("--site", "paris", "--site-period", 2, "--period", 4, "--steps", 4)
    ended = samovar_verb(tmp_path, "train", UNION, "--peers", 2, *sites, "--no-report", "--json")
    assert ended.code == 0, ended.err
    assert ended.err.count('until others join from elsewhere: all 2 peers are at one site, "paris"') == 1
