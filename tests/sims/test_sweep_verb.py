"""A sweep on the command line: it judges its seeds, and a failure can be seen again."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from live import python, verb
from scenario_files import write

from samovar.peers.run_settings.settings import Settings
from samovar.protocols.local_sgd.rounds import Committed
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.sweeps import promises
from samovar.sims.sweeps import show as show_sweep
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.tell import story
from samovar.sims.sweeps.verdict import judge
from samovar.sims.world.event_log import Began, Entry


def test_a_sweep_judges_its_seeds_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(show_sweep.os, "cpu_count", lambda: 1)
    told = json.loads(verb("simulate", "--sweep", "2", "--seed", "3", "--json").stdout)
    assert (told["first_seed"], told["seeds"], told["broken"], told["never_met"]) == (3, 2, [], [])
    assert told["reached"] == dict(judge(draw(3)).reached + judge(draw(4)).reached)
    result = verb("simulate", "--sweep", "1", "--seed", "3")
    assert result.exit_code == 0
    assert re.fullmatch(r"1 seed, every promise held; .*\n", result.stdout)
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_in_a_notebook_shows_its_progress_at_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    places, shown = list[object](), list[str]()

    class Place:
        def __init__(self) -> None:
            places.append(self)

        def show(self, _: object, text: str) -> None:
            shown.append(text)

    monkeypatch.setattr(show_sweep, "in_notebook", lambda: True)
    monkeypatch.setattr(show_sweep, "Place", Place)
    with show_sweep._Told(20, quiet=False) as told:
        for done in range(1, 21):
            told.so_far(done, 0)
    assert (len(places), shown[-1]) == (1, "20 of 20 seeds, 0 broken")


def test_a_sweep_of_one_conversation_says_so_where_a_failure_is_seen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch)
    told = json.loads(verb("simulate", "--sweep", "1", "--seed", "3", "--protocol", "allreduce", "--json").stdout)
    (failure,) = told["broken"]
    assert failure["replay"] == "samovar simulate --sweep 1 --seed 3 --protocol allreduce"
    assert told["reached"] == dict(judge(draw(3, "allreduce")).reached)
    refused = verb("simulate", "--sweep", "1", "--protocol", "nonsense")
    assert refused.exit_code == 2


def test_a_sweep_that_never_met_a_rare_place_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_sweep, "unmet", lambda verdicts, reached: ["a donor was lost"])
    result = verb("simulate", "--sweep", "1", "--seed", "3")
    assert result.exit_code == 1
    assert "never met, so that nothing is known about it: a donor was lost" in result.stdout


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that is broken as soon as a second round is committed."""

    def nobody_commits_a_second_round(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
        for _, life, event in entries:
            if isinstance(event, Committed) and event.round == 2:
                yield f"{life} did"

    monkeypatch.setattr(promises, "COMMON", (*promises.COMMON, nobody_commits_a_second_round))


def test_a_failure_is_told_with_all_that_is_needed_to_see_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch)
    result = verb("simulate", "--sweep", "1", "--seed", "36")
    assert result.exit_code == 1
    told = result.stdout
    assert re.search(r"^seed 36 broke a promise: nobody commits a second round: \d\.\d did$", told, re.MULTILINE)
    assert re.search(r"^see it again with: samovar simulate --sweep 1 --seed 36$", told, re.MULTILINE)
    shown = told.split("the scenario:\n")[1].split("the last events:")[0]
    assert read_scenario(write(tmp_path, shown)).scenario == draw(36)
    last = told.split("see it again")[0].rstrip().splitlines()[-1]
    assert re.fullmatch(r" +\d+\.\d{4} s  \d\.\d +committed round=2 .*", last)
    assert verb("simulate", "--sweep", "1", "--seed", "36").stdout.splitlines()[:-1] == told.splitlines()[:-1]


def test_a_minimised_failure_is_a_file_that_breaks_the_same_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch)
    monkeypatch.setattr(show_sweep, "minimise", partial(minimise, runs_max=6))
    told = json.loads(verb("simulate", "--sweep", "1", "--seed", "36", "--minimise", "--json").stdout)
    (failure,) = told["broken"]
    assert failure["replay"] == "samovar simulate --scenario minimal-36.toml"
    assert failure["scenario"] == Path("minimal-36.toml").read_text()
    small = read_scenario(Path("minimal-36.toml")).scenario
    assert (small.peers, len(small.faults)) < (draw(36).peers, len(draw(36).faults))
    again = verb(*failure["replay"].split()[1:], "--json", "--quiet")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["broken"] == failure["broken"]


def test_the_story_of_a_promise_that_no_event_breaks_is_the_end_of_the_run() -> None:
    """`living peers finish` is broken by what does not happen."""
    entries = [Entry(float(number), "0.0", Began()) for number in range(100)]
    scenario = Scenario.plain(Settings(device="cpu"))
    assert promises.broken(scenario, entries) == "living peers finish: nobody finished"
    assert story(scenario, entries, "living peers finish: nobody finished")[-1].startswith("   99.0000 s  0.0")


def test_ctrl_c_ends_a_process_of_a_sweep_amid_its_seed(tmp_path: Path) -> None:
    """It would else judge all seeds that it has been given, and the command would wait for it."""
    (tmp_path / "worker.py").write_text(
        "import os, signal\nfrom samovar.sims.sweeps.sweep import begin_worker\nbegin_worker()\n"
        "try:\n    os.kill(os.getpid(), signal.SIGINT)\nexcept KeyboardInterrupt:\n    pass\n"
    )
    assert python("worker.py", cwd=tmp_path).returncode == -signal.SIGINT
