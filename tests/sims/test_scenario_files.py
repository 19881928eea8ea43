"""Scenario files: what they say is read, and what is written reads as the same."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scenario_files import GROUP, write

from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import duration_text, link_text, parse_duration, parse_link, parse_size, size_text
from samovar.peers.settings.toml_rows import TableError
from samovar.protocols.link_spec import LinkSpec
from samovar.sims.scenarios.file import read_scenario
from samovar.sims.scenarios.lies import Lie
from samovar.sims.scenarios.noise import Noise
from samovar.sims.scenarios.scenario import Fault, Group, Kind, Moment, Scenario
from samovar.sims.scenarios.text import scenario_text
from samovar.sims.scenarios.traces import read_trace
from samovar.sims.sweeps.draw import draw
from samovar.sims.sweeps.verdict import judge

FULL = """
task = "my task.py"
faults_until = "1min"
buggify = true
priorities = 3

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

[[faults]]
kind = "part"
who = ["coordinator", "second"]
at_message = "Install 3 sent after Commit"
for = "1s"

[[faults]]
kind = "hang"
who = "receiver"
at = "2s"
at_message = "Have 40 received"

[[faults]]
kind = "spoil"
who = 1
at_step = 7
value = inf

[[faults]]
kind = "hostile"
who = 2
at = "3s"
for = "4s"
lie = "rest_anew"
"""


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
            Fault(
                kind=Kind.SEPARATE,
                who=("coordinator", "second"),
                at_message=Moment("Install", 3, sent=True, after="Commit"),
                for_s=1.0,
            ),
            Fault(kind=Kind.HANG, who=("receiver",), at_s=2.0, at_message=Moment("Have", 40, sent=False)),
            Fault(kind=Kind.SPOIL, who=(1,), at_step=7, factor=math.inf),
            Fault(kind=Kind.HOSTILE, who=(2,), at_s=3.0, for_s=4.0, lie=Lie.REST_ANEW),
        ),
        faults_until_s=60.0,
        buggify=True,
        priorities=3,
    )


def test_a_file_of_settings_alone_is_a_plain_run(tmp_path: Path) -> None:
    read = read_scenario(write(tmp_path, '[settings]\npeers = 7\nlink = "3mbit,40ms"\n'))
    assert read.scenario == Scenario.plain(Settings(peers=7, link="3mbit,40ms", device="cpu"))
    assert read.task is None


def test_a_late_peer_founds_no_run_unless_the_file_says_so(tmp_path: Path) -> None:
    late = GROUP + '[[arrivals]]\npeer = 3\nat = "9s"\n'
    assert read_scenario(write(tmp_path, late)).scenario.settings.peers == 3
    assert read_scenario(write(tmp_path, "[settings]\npeers = 4\n" + late)).scenario.settings.peers == 4


def test_flags_win_over_the_settings_of_a_file(tmp_path: Path) -> None:
    file = write(tmp_path, "[settings]\nseed = 1\nsteps = 9\n" + GROUP)
    assert read_scenario(file, {"seed": 2, "steps": None}).scenario.settings == Settings(seed=2, steps=9, device="cpu")


def test_a_written_scenario_reads_as_the_same(tmp_path: Path) -> None:
    whole = read_scenario(write(tmp_path, FULL)).scenario
    for scenario in (whole, *map(draw, range(300)), *(draw(seed, "allreduce") for seed in (21, 40))):
        assert read_scenario(write(tmp_path, scenario_text(scenario))).scenario == scenario
    odd = replace(whole, settings=replace(whole.settings, run='a "b"\\\n\x7f\u00e9\U0001f600'))
    assert read_scenario(write(tmp_path, scenario_text(odd, Path("x y.py")))).scenario == odd


def test_a_written_scenario_plays_to_the_same_digest(tmp_path: Path) -> None:
    scenario = draw(20)
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
    moment = Moment("Commit", 1, sent=True)
    amid = Fault(kind=Kind.CRASH, who=(1,), at_message=moment, at_event=2, at_step=3, at_s=4.0)
    assert amid == Fault(kind=Kind.CRASH, who=(1,), at_message=moment, at_s=4.0)
    assert Fault(kind=Kind.PAUSE, who=(1,)) == Fault(kind=Kind.PAUSE, who=(1,), at_s=0.0)


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


def test_a_scenario_with_a_trace_knows_which_peers_come_and_go(tmp_path: Path) -> None:
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
