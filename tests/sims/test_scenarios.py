"""Scenarios are played as their file says, and can be played again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from live import verb
from scenario_files import GROUP, write

from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.sweeps import promises
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *flags: str, code: int = 0) -> dict[str, Any]:
    """The result of playing a scenario of the toy task."""
    monkeypatch.chdir(tmp_path)
    result = verb("simulate", "--scenario", write(tmp_path, text), "--json", "--quiet", "--no-report", *flags)
    assert result.exit_code == code, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


SMALL = '[settings]\nsteps = 30\nperiod = "5"\npatience_s = 1.0\n'


def test_the_same_file_gives_the_same_digest_and_another_seed_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL + GROUP + '[[faults]]\nkind = "noise"\nat = "0s"\nfor = "3s"\nloss = 0.1\n'
    digests = [play(tmp_path, monkeypatch, text, "--seed", seed)["digest"] for seed in "112"]
    assert digests[0] == digests[1] != digests[2]


def test_a_run_can_be_played_again_from_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = play(tmp_path, monkeypatch, SMALL + GROUP, "--run", "first", "--seed", "5")
    again = play(tmp_path, monkeypatch, Path("first/scenario.toml").read_text())
    assert again["digest"] == first["digest"]
    assert again["run"] != first["run"]


def test_a_peer_beyond_its_memory_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = '[[groups]]\npeers = 1\nlink = "10mbit,40ms"\nmemory = "100B"\n'
    plenty = small.replace("100B", "1MiB")
    (lost,) = play(tmp_path, monkeypatch, SMALL + GROUP + small)["lost"]
    assert lost["peer"] == "4"
    assert re.fullmatch(r"out of memory: it needed \d+ B and has 100 B", lost["why"])
    assert play(tmp_path, monkeypatch, SMALL + GROUP + plenty)["lost"] == []


def test_peers_that_gave_up_or_crashed_are_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = '[[faults]]\nkind = "crash"\nwho = [0, 1]\nat_event = 60\n'
    result = play(tmp_path, monkeypatch, SMALL + GROUP + crash)
    why = {lost["peer"]: lost["why"] for lost in result["lost"]}
    assert why["0"] == why["1"] == "crashed, as the scenario has it"
    assert set(why) == {"0", "1", "2", "3"}
    assert why["2"].startswith("gave up: ")


def test_faults_are_undone_in_any_order_of_their_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two other links and two noises that overlap, either within the other or beyond: when all are over, all is as it
    was."""
    link = '[[faults]]\nkind = "link"\nwho = [1]\nat = "{}s"\nfor = "{}s"\nlink = "{}mbit,9ms"\n'
    noise = '[[faults]]\nkind = "noise"\nat = "{}s"\nfor = "{}s"\nreorder = {}\n'
    for first, second in ((3, 1), (1, 3)):
        text = SMALL.replace("30", "120") + GROUP + 'step_time = "50ms"\n'
        text += link.format(1, first, 5) + link.format(1.5, second, 6)
        text += noise.format(1, first, 0.1) + noise.format(1.5, second, 0.2)
        scenario = read_scenario(write(tmp_path, text)).scenario
        world = World(toy_task(), scenario)
        seen: list[tuple[float, float]] = []

        def look(index: int, step: int, world: World = world, seen: list[tuple[float, float]] = seen) -> None:
            seen.append((world.network.links["peer-1"].bandwidth_Bps * 8 / 1e6, world.network.noise.reorder))

        monkeypatch.setattr(world.nemesis, "stepped", look)
        run_virtual(world.run(within_s=100.0), seed=0)
        there = list(dict.fromkeys(seen))
        assert {(5.0, 0.1), (6.0, 0.2)} <= set(there)
        assert seen[0] == seen[-1] == (10.0, 0.0)


def test_a_broken_promise_is_exit_code_1_with_the_last_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_round_is_ever_committed(scenario: Scenario, entries: object) -> Any:
        yield "one was"

    monkeypatch.setattr(promises, "COMMON", (*promises.COMMON, no_round_is_ever_committed))
    result = play(tmp_path, monkeypatch, SMALL + GROUP, code=1)
    assert result["broken"] == "no round is ever committed: one was"
    told = verb("simulate", "--scenario", "my.toml")
    assert told.exit_code == 1
    assert "broken promise: no round is ever committed: one was" in told.stdout
    assert re.search(r"the last events:\n +\d+\.\d{4} s  \d\.0 ", told.stdout)
    html = next(Path("runs").glob("*/report.html")).read_text() if list(Path("runs").glob("*/report.html")) else ""
    assert "no round is ever committed: one was" in html


def test_a_measured_step_time_is_told_and_given_again_gives_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Path(__file__).parents[1] / "support" / "tasks/union.py"
    common = ("simulate", task, "--peers", 2, "--steps", 20, "--no-report")
    told = verb(*common, "--step-time", "measured").stdout
    step_time, digest = (re.search(pattern, told)[1] for pattern in (r"--step-time (\d+us)", r"digest: (\w+)"))
    again = verb(*common, "--step-time", step_time).stdout
    assert f"digest: {digest}" in again
    assert f"digest: {digest}" not in verb(*common, "--step-time", "77ms").stdout
