"""Scenario files: what they say is played, what they cannot say is told in one line, a failure can be seen again."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import verb

from samovar.peers.links import duration_text, link_text, parse_duration, parse_link, parse_size, size_text
from samovar.peers.settings import Settings
from samovar.peers.toml_rows import TableError
from samovar.protocols.link_spec import LinkSpec
from samovar.protocols.rounds import Committed
from samovar.sims.links import Noise
from samovar.sims.log import Began, Entry
from samovar.sims.loop import run_virtual
from samovar.sims.scenarios.draw import draw
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Scenario
from samovar.sims.scenarios.text import scenario_text
from samovar.sims.scenarios.traces import read_trace
from samovar.sims.sweeps import checkers
from samovar.sims.sweeps import show as show_sweep
from samovar.sims.sweeps.minimise import minimise
from samovar.sims.sweeps.tell import story
from samovar.sims.sweeps.verdict import judge
from samovar.sims.toy import toy_task
from samovar.sims.world import World

GROUP = '[[groups]]\npeers = 4\nlink = "10mbit,40ms"\n'
FULL = """
task = "my task.py"
faults_until = "1min"
buggify = true

[settings]
period-initial = 4
seed = 7
step_time = "4ms"

[[groups]]
peers = 2
site = "east"
link = "1gbit/500mbit,200us,50us"
speed = 2

[[groups]]
peers = 3
site = "west"
step-time = "0.5s"
memory = "2GiB"

[[trunks]]
between = ["east", "west"]
link = "100mbit,40ms"

[[arrivals]]
peer = 4
at = "2.5s"

[[faults]]
kind = "crash"
who = [3, "coordinator"]
at = "5s"

[[faults]]
kind = "cut_off"
who = "west"
at_event = 40
for = "2s"

[[faults]]
kind = "slow"
who = [1]
at_step = 3
for = "1500ms"
factor = 8

[[faults]]
kind = "noise"
at = "0s"
for = "10s"
loss = 0.25

[[faults]]
kind = "link"
who = 0
at = "1s"
link = "2mbit,80ms"

[[faults]]
kind = "clock"
at = "1s"
jump = "-1h"

[[faults]]
kind = "clock"
who = 3
at = "2s"
drift = 0.01
"""


def write(folder: Path, text: str, name: str = "my.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file


def play(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, *flags: str, code: int = 0) -> dict[str, Any]:
    """The result of playing a scenario of the toy task."""
    monkeypatch.chdir(tmp_path)
    result = verb("simulate", "--scenario", write(tmp_path, text), "--json", "--quiet", "--no-report", *flags)
    assert result.exit_code == code, result.output
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed


# ---- what a file says


def test_a_file_says_all_that_a_scenario_is(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, FULL))
    assert read.task == tmp_path / "my task.py"
    fast = LinkSpec(bandwidth_Bps=500e6 / 8, down_Bps=1e9 / 8, latency_s=2e-4, jitter_s=5e-5)
    usual = LinkSpec(bandwidth_Bps=100e6 / 8, latency_s=5e-3)
    assert read.scenario == Scenario(
        settings=Settings(period_initial=4, seed=7, step_time="4ms", peers=4, device="cpu"),
        groups=(
            Group(peers=2, site="east", link=fast, step_s=0.002),
            Group(peers=3, site="west", link=usual, step_s=0.5, memory_bytes=2 << 30),
        ),
        trunks=(("east", "west", LinkSpec(bandwidth_Bps=100e6 / 8, latency_s=0.04)),),
        arrivals=((4, 2.5),),
        faults=(
            Fault(kind=Kind.CRASH, who=(3, "coordinator"), at_s=5.0),
            Fault(kind=Kind.CUT_OFF, who=(2, 3, 4), at_event=40, for_s=2.0),
            Fault(kind=Kind.SLOW, who=(1,), at_step=3, for_s=1.5, factor=8.0),
            Fault(kind=Kind.NOISE, at_s=0.0, for_s=10.0, noise=Noise(loss=0.25)),
            Fault(kind=Kind.LINK, who=(0,), at_s=1.0, link=LinkSpec(bandwidth_Bps=2e6 / 8, latency_s=0.08)),
            Fault(kind=Kind.CLOCK, at_s=1.0, factor=-3600.0),
            Fault(kind=Kind.CLOCK, who=(3,), at_s=2.0, factor=0.0, drift=0.01),
        ),
        faults_until_s=60.0,
        buggify=True,
    )


def test_a_file_of_settings_alone_is_a_plain_run(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, '[settings]\npeers = 7\nlink = "3mbit,40ms"\n'))
    assert read.scenario == Scenario.plain(Settings(peers=7, link="3mbit,40ms", device="cpu"))
    assert read.task is None


def test_who_comes_late_founds_no_run_unless_the_file_says_so(tmp_path: Path) -> None:
    late = GROUP + '[[arrivals]]\npeer = 3\nat = "9s"\n'
    assert read_scenario(write(tmp_path, late)).scenario.settings.peers == 3
    assert read_scenario(write(tmp_path, "[settings]\npeers = 4\n" + late)).scenario.settings.peers == 4


def test_flags_win_over_the_settings_of_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[settings]\nseed = 1\nsteps = 9\n" + GROUP)
    assert read_scenario(file, {"seed": 2, "steps": None}).scenario.settings == Settings(seed=2, steps=9, device="cpu")


def test_what_is_written_reads_as_the_same(tmp_path: Path) -> None:
    whole = read_scenario(write(tmp_path, FULL)).scenario
    for scenario in (whole, *map(draw, range(300))):
        assert read_scenario(write(tmp_path, scenario_text(scenario))).scenario == scenario
    odd = replace(whole, settings=replace(whole.settings, run='a "b"\\\n\x7f\u00e9\U0001f600'))
    assert read_scenario(write(tmp_path, scenario_text(odd, Path("x y.py")))).scenario == odd


def test_a_written_scenario_plays_to_the_same_digest(tmp_path: Path) -> None:
    scenario = draw(11)
    again = read_scenario(write(tmp_path, scenario_text(scenario))).scenario
    assert judge(again).digest == judge(scenario).digest


@given(st.floats(0, 1e9), st.floats(1e-3, 1e14), st.floats(1e-3, 1e14) | st.none(), st.integers(0, 1 << 45))
def test_quantities_are_written_without_loss(seconds: float, up: float, down: float | None, size: int) -> None:
    link = LinkSpec(bandwidth_Bps=up, down_Bps=down, latency_s=seconds, jitter_s=seconds / 3)
    assert parse_link(link_text(link)) == link
    assert parse_duration(duration_text(seconds)) == seconds
    assert parse_size(size_text(size)) == size


def test_quantities_are_written_as_people_write_them() -> None:
    for link in ("10mbit,40ms", "1gbit/500mbit,8ms,2ms", "56kbit,1s"):
        assert link_text(parse_link(link)) == link
    assert (duration_text(0.04), duration_text(0.1), duration_text(3600.0)) == ("40ms", "100ms", "1h")
    assert (duration_text(0.0), duration_text(2.5), size_text(2 << 30)) == ("0s", "2.5s", "2GiB")


def test_faults_that_do_the_same_are_equal() -> None:
    said = Fault(kind=Kind.CRASH, who=(1, 1), at_step=3, at_s=2.0, for_s=4.0, factor=9.0, noise=Noise(loss=1.0))
    assert said == Fault(kind=Kind.CRASH, who=(1,), at_step=3)
    assert Fault(kind=Kind.PAUSE, who=(1,)) == Fault(kind=Kind.PAUSE, who=(1,), at_s=0.0)


# ---- traces

TRACE = """time,peer,what
# somebody's laptops
0s,1,down
4s,1,up
2s,0,down
1s,2,"2mbit,80ms"
3s,2,4mbit,80ms

6s,2,usual
9s,0,up
12s,1,down
"""


def test_a_trace_becomes_arrivals_and_faults(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, TRACE, "trace.csv"), 3)
    slow, faster = parse_link("2mbit,80ms"), parse_link("4mbit,80ms")
    assert trace.arrivals == {1: 4.0}
    assert trace.faults == [
        Fault(kind=Kind.LINK, who=(2,), at_s=1.0, for_s=2.0, link=slow),
        Fault(kind=Kind.LINK, who=(2,), at_s=3.0, for_s=3.0, link=faster),
        Fault(kind=Kind.CRASH, who=(1,), at_s=12.0),
        Fault(kind=Kind.RESTART, who=(0,), at_s=2.0, for_s=7.0),
    ]


def test_a_scenario_with_a_trace_knows_who_comes_and_goes(tmp_path: Path) -> None:
    write(tmp_path, TRACE, "trace.csv")
    read = read_scenario(write(tmp_path, GROUP + '[[traces]]\nfile = "trace.csv"\n')).scenario
    assert (read.arrivals, read.settings.peers, len(read.faults)) == (((1, 4.0),), 3, 4)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("5,0,up", "trace.csv, line 2: '5' is not a duration: a number and one of us, ms, s, min, h, e.g. 5ms"),
        ("-5s,0,up", "trace.csv, line 2: '-5s' is not a duration"),
        ("5s,4,up", "trace.csv, line 2: there is no peer '4', only 0 to 3"),
        ("5s,x,up", "trace.csv, line 2: there is no peer 'x', only 0 to 3"),
        ("5s,0,asleep", "trace.csv, line 2: 'asleep' is no link: write BANDWIDTH,LATENCY"),
        ('5s,0,"10,4ms"', "trace.csv, line 2: '10' is not a bandwidth"),
        ("5s,0", "trace.csv, line 2: time, peer and what are due: up, down, a link or usual"),
        ("5s,0,down\n6s,0,down", "trace.csv, line 3: peer 0 is down already"),
        ("\udcff", "trace.csv, line 2: not UTF-8 text"),
    ],
)
def test_a_fault_in_a_trace_is_told_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.csv").write_bytes(f"time,peer,what\n{line}\n".encode(errors="surrogateescape"))
    with pytest.raises(TableError, match=f"^{re.escape(said)}"):
        read_scenario(write(Path(), GROUP + '[[traces]]\nfile = "trace.csv"\n'))


# ---- what cannot be


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("buggfy = true", 'line 1: unknown key \'buggfy\'; did you mean \'buggify\'?'),
        (GROUP + "sight = 'a'", "line 4: unknown key 'sight'; did you mean 'site'?"),
        ("[settings]\n\nperod = 8", 'line 3: unknown key "perod"; did you mean "period"?'),
        (GROUP + "\n[[faults]]\nkind = 'ring'\nat = '1s'\nuntil = '2s'", "line 8: unknown key 'until'; known are"),
        ("groups = 3", "line 1: groups must be tables, each under [[groups]], got 3"),
        ("[[settings]]\npeers = 3", "line 1: settings must be a table, got a list"),
        ("groups = [3]", "line 1: groups number 1 must be a table, got 3"),
        ("[[groups]]\npeers = 4\nlink = '10,40ms'", "line 3: link: '10' is not a bandwidth: a number and one of bit, "),
        ("[[groups]]\npeers = 4\nlink = '10mbit,40'", "line 3: link: '40' is not a duration"),
        ("[[groups]]\npeers = 4\nlink = 10", 'line 3: link: must be text with a unit, such as "10mbit,40ms", got 10'),
        ("[[groups]]\npeers = 4\nlink = '0mbit,1s'", "line 3: link: a bandwidth of '0mbit' carries nothing"),
        ("[[groups]]\npeers = 4\nlink = '9999999tbit,1s'", "line 3: link: '9999999tbit' is more than any link or run"),
        (GROUP + "memory = '2'", "line 4: memory: '2' is not a size: a number and one of b, kib, "),
        (GROUP + "step_time = 5", 'line 4: step_time: must be text with a unit, such as "5ms" or "2s", got 5'),
        (GROUP + "step_time = '0s'", "line 4: step_time: must be above 0, got '0s'"),
        (GROUP + "speed = 0", "line 4: speed: must be a factor from 1e-6 to 1e6, got 0"),
        (GROUP + "speed = nan", "line 4: speed: must be finite, got nan"),
        (GROUP + "speed = 2\nstep_time = '5ms'", "line 4: speed: goes by the step_time of the settings: give one of"),
        (GROUP + "site = 'newest'", "line 4: site: newest is a role, which a fault may be aimed at: call the site"),
        (GROUP + "site = ''", "line 4: site: must be a name of 1 to 60 characters, got ''"),
        ("[[groups]]\npeers = 4.0", "line 2: peers: must be a whole number from 1 to 1000000, got 4.0"),
        ("[[groups]]\npeers = 0", "line 2: peers: must be a whole number from 1 to 1000000, got 0"),
        ("[[groups]]\nlink = '10mbit,40ms'", "line 1: groups number 1: peers is missing"),
        ("[[groups]]\npeers = 900000\n" * 2, "line 1: groups: 1800000 peers together, at most 1000000 can be"),
        ("[settings]\npeers = 5\n" + GROUP, "line 2: peers: 5 are to found the run, the groups have 4"),
        ("[settings]\nstep_time = 'measured'", "line 1: step_time: a scenario says how long: write what"),
        ("[settings]\npatience_s = -1", "line 2: patience_s must be a number of seconds, above 0 and at most 86400"),
        ("[settings]\nquorum = 5\n" + GROUP, "line 2: quorum must be at most the number of peers, 4, got 5"),
        ("faults_until = '-1s'", "line 1: faults_until: must not be negative, got '-1s'"),
        ("buggify = 1", "line 1: buggify: must be true or false, got 1"),
        ("task = 3", "line 1: task: must be the path of a file, got 3"),
        (GROUP + "[[trunks]]\nbetween = ['a', 'b']\nlink = '1gbit,1ms'", "line 5: between: nobody is at 'a'; "),
        (GROUP + "[[trunks]]\nbetween = ['a']\nlink = '1gbit,1ms'", "line 5: between: must be two sites, such as"),
        (GROUP + "[[arrivals]]\npeer = 4\nat = '1s'", "line 5: peer: there is no peer 4, only 0 to 3"),
        (GROUP + "[[arrivals]]\npeer = 1\nat = '-1s'", "line 6: at: must not be negative, got '-1s'"),
        (GROUP + "[[arrivals]]\npeer = 1", "line 4: arrivals number 1: at is missing"),
        (GROUP + "[[arrivals]]\npeer = 1\nat = '1s'\n" * 2, "line 8: peer: peer 1 comes twice"),
        (GROUP + "[[traces]]\nfile = 'nowhere.csv'", "nowhere.csv: cannot be read: no such file or directory"),
        ("seed = ", "line 1: not TOML: "),
    ],
)  # fmt: skip
def test_what_a_file_cannot_say_is_told_with_its_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    where = "my.toml, " if said.startswith("line") else ""
    with pytest.raises(TableError, match=f"^{re.escape(where + said)}") as error:
        read_scenario(write(Path(), text))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("kind = 'crash'\nwho = [0, 1, 2, 3, 3]\nat = '1s'", "line 6: who: more faults than peers: 5 are meant, "),
        ("kind = 'crash'\nwho = [4]\nat = '1s'", "line 6: who: there is no peer 4, only 0 to 3"),
        (
            "kind = 'crash'\nwho = [0, 1, 'newest']\nat = '1s'\n[[faults]]\nkind = 'crash'\nwho = [2, 3]\nat = '2s'",
            "line 10: who: more faults than peers: 5 are to crash for good, there are 4",
        ),
        ("kind = 'crash'\nwho = [-1]\nat = '1s'", "line 6: who: there is no peer -1, only 0 to 3"),
        ("kind = 'crash'\nwho = [true]\nat = '1s'", "line 6: who: there is no peer true, only 0 to 3"),
        ("kind = 'crash'\nwho = ['cordinator']\nat = '1s'", "line 6: who: 'cordinator' is nobody; did you mean "),
        ("kind = 'crash'\nat = '1s'", "line 5: kind: crash whom? who is missing"),
        ("kind = 'link'\nwho = []\nat = '1s'\nlink = '1mbit,1ms'", "line 5: kind: link whom? who is missing"),
        ("kind = 'crush'\nwho = [1]\nat = '1s'", "line 5: kind: 'crush' is no fault; did you mean 'crash'?"),
        ("kind = 3", "line 5: kind: 3 is no fault; known are crash, pause, "),
        ("who = [1]", "line 4: faults number 1: kind is missing"),
        ("kind = 'crash'\nwho = [1]", "line 4: faults number 1: say when with one of at, at_event and at_step"),
        ("kind = 'ring'\nat = '1s'\nat_event = 3", "line 7: at_event: say when with one of at, at_event and at_step"),
        ("kind = 'ring'\nat = '-3s'", "line 6: at: must not be negative, got '-3s'"),
        ("kind = 'ring'\nat = -3", 'line 6: at: must be text with a unit, such as "5ms" or "2s", got -3'),
        ("kind = 'ring'\nat = '3'", "line 6: at: '3' is not a duration: a number and one of us, ms, s, min, h, e.g."),
        ("kind = 'ring'\nat_event = 0", "line 6: at_event: must be a whole number from 1 to 1000000000000, got 0"),
        ("kind = 'ring'\nat_step = 2", "line 6: at_step: a step is that of the first in who, which must be the number"),
        ("kind = 'crash'\nwho = [1]\nat = '1s'\nfor = '2s'", "line 8: for: crash does not last"),
        ("kind = 'crash'\nwho = [1]\nat = '1s'\nfactor = 2", "line 8: factor: crash has no use for it"),
        ("kind = 'pause'\nwho = [1]\nat = '1s'", "line 5: kind: pause for how long? for is missing"),
        ("kind = 'restart'\nwho = [1]\nat = '1s'", "line 5: kind: restart for how long? for is missing"),
        ("kind = 'slow'\nwho = [1]\nat = '1s'", "line 4: faults number 1: factor is missing"),
        ("kind = 'link'\nwho = [1]\nat = '1s'", "line 4: faults number 1: link is missing"),
        ("kind = 'noise'\nat = '1s'", "line 5: kind: noise needs one of loss, duplicate, reorder, corrupt"),
        ("kind = 'noise'\nat = '1s'\nloss = 2", "line 7: loss: is a probability from 0 to 1, got 2"),
        ("kind = 'noise'\nat = '1s'\nloss = '10%'", "line 7: loss: must be a number, got '10%'"),
        ("kind = 'clock'\nat = '1s'\njump = 3600", 'line 7: jump: must be text with a unit, such as "5ms" or "2s"'),
        ("kind = 'clock'\nat = '1s'", "line 5: kind: clock needs one of jump, drift"),
        ("kind = 'clock'\nat = '1s'\ndrift = -2", "line 7: drift: is seconds a second, from -1 to 1, got -2"),
        ("kind = 'slow'\nwho = [1]\nat = '1s'\ndrift = 0.1", "line 8: drift: slow has no use for it"),
    ],
)  # fmt: skip
def test_a_fault_that_cannot_be_is_told_with_its_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TableError, match=f"^{re.escape('my.toml, ' + said)}") as error:
        read_scenario(write(Path(), f"{GROUP}[[faults]]\n{fault}\n"))
    assert "\n" not in str(error.value)


def test_100_mb_of_toml_are_refused_by_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with open("my.toml", "wb") as file:
        file.truncate(100_000_000)
    result = verb("simulate", "--scenario", "my.toml")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "samovar: my.toml: larger than 1 MiB, which no scenario is\n"


json_like = st.recursive(
    st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text("ab0sm\"'[]=\n", max_size=6),
    lambda inner: st.lists(inner, max_size=3),
)
KEYS = "task settings groups trunks arrivals faults traces faults_until buggify peers link kind who at for".split()


@given(st.lists(st.tuples(st.sampled_from(["", "[{}]", "[[{}]]"]), st.sampled_from(KEYS), json_like), max_size=8))
def test_whatever_a_file_holds_it_is_a_scenario_or_one_line(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, object]]
) -> None:
    lines = [head.format(key) if head else f"{key} = {json.dumps(value)}" for head, key, value in rows]
    file = write(tmp_path_factory.getbasetemp(), "\n".join(lines))
    try:
        assert read_scenario(file).scenario.peers > 0
    except TableError as error:
        assert "\n" not in str(error)  # noqa: PT017  # either outcome is right
        assert len(str(error)) < 500  # noqa: PT017


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("simulate", "missing argument 'TASK', or --scenario, or --sweep; see samovar simulate --help"),
        ("simulate --scenario nowhere.toml", "nowhere.toml: cannot be read: no such file or directory"),
        ("simulate --scenario bad.toml", "bad.toml, line 1: unknown key 'perid'; known are task, settings, groups, "),
        ("simulate --scenario good.toml --peers 3", "--scenario says it in the file: leave out --peers; see samovar"),
        ("simulate --scenario good.toml --steps 0", "--steps must be a whole number from 1 to 1000000000000, got 0"),
        ("simulate --scenario lost.toml", "nowhere.py: no such file"),
        ("simulate nowhere.py --minimise", "--minimise is for a --sweep; see samovar simulate --help"),
        (
            "simulate --sweep 0",
            "invalid value for '--sweep': 0 is not in the range 1<=x<=1000000; see samovar simulate --help",
        ),
        ("simulate --sweep 3 --steps 4", "--sweep draws all but the first seed: leave out --steps; see samovar"),
        ("simulate nowhere.py --sweep 3", "--sweep draws its scenarios: leave out TASK and --scenario; see samovar"),
    ],
)
def test_what_simulate_cannot_do_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "perid = 3\n", "bad.toml")
    write(tmp_path, GROUP, "good.toml")
    write(tmp_path, 'task = "nowhere.py"\n', "lost.toml")
    result = verb(*arguments.split())
    assert (result.exit_code, result.stdout) == (2, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith(f"samovar: {said}")


# ---- what is played

SMALL = '[settings]\nsteps = 30\nperiod = "5"\npatience_s = 1.0\n'


def test_the_same_file_gives_the_same_digest_and_another_seed_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = SMALL + GROUP + '[[faults]]\nkind = "noise"\nat = "0s"\nfor = "3s"\nloss = 0.1\n'
    digests = [play(tmp_path, monkeypatch, text, "--seed", seed)["digest"] for seed in "112"]
    assert digests[0] == digests[1] != digests[2]


def test_a_run_can_be_played_again_from_what_it_leaves_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = play(tmp_path, monkeypatch, SMALL + GROUP, "--run", "first", "--seed", "5")
    again = play(tmp_path, monkeypatch, Path("first/scenario.toml").read_text())
    assert again["digest"] == first["digest"]
    assert again["run"] != first["run"]


def test_a_peer_that_needs_more_memory_than_it_has_is_killed_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = '[[groups]]\npeers = 1\nlink = "10mbit,40ms"\nmemory = "100B"\n'
    plenty = small.replace("100B", "1MiB")
    (lost,) = play(tmp_path, monkeypatch, SMALL + GROUP + small)["lost"]
    assert lost["peer"] == "4"
    assert re.fullmatch(r"out of memory: it needed \d+ B and has 100 B", lost["why"])
    assert play(tmp_path, monkeypatch, SMALL + GROUP + plenty)["lost"] == []


def test_who_gave_up_and_who_crashed_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash = '[[faults]]\nkind = "crash"\nwho = [0, 1]\nat_event = 60\n'
    result = play(tmp_path, monkeypatch, SMALL + GROUP + crash)
    why = {lost["peer"]: lost["why"] for lost in result["lost"]}
    assert why["0"] == why["1"] == "crashed, as the scenario has it"
    assert set(why) == {"0", "1", "2", "3"}
    assert why["2"].startswith("gave up: ")


def test_faults_are_undone_in_whatever_order_they_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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

    monkeypatch.setitem(checkers.PROMISES, "no round is ever committed", no_round_is_ever_committed)
    result = play(tmp_path, monkeypatch, SMALL + GROUP, code=1)
    assert result["broken"] == "no round is ever committed: one was"
    told = verb("simulate", "--scenario", "my.toml")
    assert told.exit_code == 1
    assert "broken promise: no round is ever committed: one was" in told.stdout
    assert re.search(r"the last events:\n +\d+\.\d{4} s  \d\.0 ", told.stdout)
    html = next(Path("runs").glob("*/report.html")).read_text() if list(Path("runs").glob("*/report.html")) else ""
    assert "no round is ever committed: one was" in html


# ---- sweeps


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


def test_a_sweep_that_never_met_what_it_should_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show_sweep, "unmet", lambda count, reached: ["a donor was lost"])
    result = verb("simulate", "--sweep", "1", "--seed", "3")
    assert result.exit_code == 1
    assert "never met, so that nothing is known about it: a donor was lost" in result.stdout


def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    """A promise that is broken as soon as a second round is committed."""

    def nobody_commits_a_second_round(scenario: Scenario, entries: Sequence[Entry]) -> Iterator[str]:
        for _, life, event in entries:
            if isinstance(event, Committed) and event.round == 2:
                yield f"{life} did"

    monkeypatch.setitem(checkers.PROMISES, "nobody commits a second round", nobody_commits_a_second_round)


def test_a_failure_is_told_with_all_that_is_needed_to_see_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch)
    result = verb("simulate", "--sweep", "1", "--seed", "3")
    assert result.exit_code == 1
    told = result.stdout
    assert re.search(r"^seed 3 broke a promise: nobody commits a second round: \d\.\d did$", told, re.MULTILINE)
    assert re.search(r"^see it again with: samovar simulate --sweep 1 --seed 3$", told, re.MULTILINE)
    shown = told.split("the scenario:\n")[1].split("the last events:")[0]
    assert read_scenario(write(tmp_path, shown)).scenario == draw(3)
    last = told.split("see it again")[0].rstrip().splitlines()[-1]
    assert re.fullmatch(r" +\d+\.\d{4} s  \d\.\d +committed round=2 .*", last)
    assert verb("simulate", "--sweep", "1", "--seed", "3").stdout.splitlines()[:-1] == told.splitlines()[:-1]


def test_a_minimised_failure_is_a_file_that_breaks_the_same_promise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    plant(monkeypatch)
    monkeypatch.setattr(show_sweep, "minimise", partial(minimise, runs_max=6))
    told = json.loads(verb("simulate", "--sweep", "1", "--seed", "3", "--minimise", "--json").stdout)
    (failure,) = told["broken"]
    assert failure["replay"] == "samovar simulate --scenario minimal-3.toml"
    assert failure["scenario"] == Path("minimal-3.toml").read_text()
    small = read_scenario(Path("minimal-3.toml")).scenario
    assert (small.peers, len(small.faults)) < (draw(3).peers, len(draw(3).faults))
    again = verb(*failure["replay"].split()[1:], "--json", "--quiet")
    assert again.exit_code == 1
    assert json.loads(again.stdout)["broken"] == failure["broken"]


def test_the_story_of_a_promise_that_no_event_breaks_is_the_end_of_the_run() -> None:
    """`who lives finishes` is broken by what does not happen."""
    entries = [Entry(float(number), "0.0", Began()) for number in range(100)]
    scenario = Scenario.plain(Settings(device="cpu"))
    assert checkers.broken(scenario, entries) == "who lives finishes: nobody finished"
    assert story(scenario, entries, "who lives finishes: nobody finished")[-1].startswith("   99.0000 s  0.0")


def test_a_measured_step_time_is_told_and_given_again_gives_the_same_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    task = Path(__file__).parent / "tasks/union.py"
    common = ("simulate", task, "--peers", 2, "--steps", 20, "--no-report")
    told = verb(*common, "--step-time", "measured").stdout
    step_time, digest = (re.search(pattern, told)[1] for pattern in (r"--step-time (\d+us)", r"digest: (\w+)"))
    again = verb(*common, "--step-time", step_time).stdout
    assert f"digest: {digest}" in again
    assert f"digest: {digest}" not in verb(*common, "--step-time", "77ms").stdout
