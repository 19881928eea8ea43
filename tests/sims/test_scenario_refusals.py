"""Scenario files: what they cannot say is told in one line, with its place."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from live import verb
from scenario_files import GROUP, write
from tiers import one_in

from samovar.peers.settings.toml_rows import TableError
from samovar.sims.scenarios.file import read_scenario

UNSAYABLE = [
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
        (GROUP + "speed = 0", "line 4: speed: must be a factor from 1e-6 to 1e6, got 0"),
        (GROUP + "speed = nan", "line 4: speed: must be finite, got nan"),
        (GROUP + "speed = 2\nstep_time = '5ms'", "line 4: speed: goes by the step_time of the settings: give one of"),
        (GROUP + "site = 'newest'", "line 4: site: newest is a role, which a fault may be aimed at: call the site"),
        (GROUP + "site = ''", "line 4: site: must be a name of 1 to 60 characters, got ''"),
        ("[[groups]]\npeers = 4.0", "line 2: peers: must be a whole number from 1 to 10000, got 4.0"),
        ("[[groups]]\npeers = 0", "line 2: peers: must be a whole number from 1 to 10000, got 0"),
        ("[[groups]]\nlink = '10mbit,40ms'", "line 1: groups number 1: peers is missing"),
        ("[[groups]]\npeers = 900\n" * 2, "line 1: groups: all peers together must be at most 1024, "),
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
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), one_in(5, UNSAYABLE))
def test_a_bad_entry_of_a_scenario_is_told_with_its_line_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    where = "my.toml, " if said.startswith("line") else ""
    with pytest.raises(TableError, match=f"^{re.escape(where + said)}") as error:
        read_scenario(write(Path(), text))
    assert "\n" not in str(error.value)


GOSSIP = "[settings]\nprotocol = 'gossip'\n"
LATE = "".join(f"[[arrivals]]\npeer = {peer}\nat = '1s'\n" for peer in range(1020, 1030))


@pytest.mark.parametrize("rest", ["[[groups]]\npeers = 1025\n", "[[groups]]\npeers = 1030\n" + LATE])
def test_more_peers_than_a_view_holds_are_referred_to_swim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(Path(), GOSSIP + rest)
    told = verb("simulate", "--scenario", "my.toml").stderr
    assert "at most 1024" in told
    assert "all named in one message" in told
    assert told.endswith("; --protocol gossip --membership swim has room for 10000\n")
    assert read_scenario(write(Path(), GOSSIP + "membership = 'swim'\n" + rest)).scenario.peers > 1024


NO_FAULTS = [
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
        ("kind = 'crash'\nwho = [1]", "line 4: faults number 1: say when with one of at, at_event, "),
        ("kind = 'ring'\nat = '1s'\nat_event = 3", "line 7: at_event: say when with one of at, at_event, "),
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
        ("kind = 'part'\nwho = [1]\nat = '1s'", "line 6: who: part whom from whom? name two at least"),
        ("kind = 'crash'\nwho = ['sender']\nat = '1s'", "line 6: who: only at_message has a sender and a receiver"),
        ("kind = 'hostile'\nat = '1s'\nlie = 'to_one'", "line 7: lie: a lie of whom? who is missing"),
        ("kind = 'hostile'\nwho = [1]\nat = '1s'\nlie = 'to_on'", "line 8: lie: 'to_on' is no lie; did you mean "),
        ("kind = 'crash'\nwho = [1]\nat = '1s'\nlie = 'to_one'", "line 8: lie: crash has no use for it"),
        ("kind = 'spoil'\nwho = [1]\nat = '1s'", "line 4: faults number 1: value is missing"),
        ("kind = 'spoil'\nwho = [1]\nat = '1s'\nvalue = nan", "line 8: value: must be finite, got nan"),
        ("kind = 'crash'\nwho = [1]\nat_message = 'Commit'", "line 7: at_message: must be a kind of message, its "),
        ("kind = 'crash'\nwho = [1]\nat_message = 'Commit 0 sent'", "line 7: at_message: must be a kind of message,"),
        ("kind = 'crash'\nwho = [1]\nat_message = 'Comit 1 sent'", "line 7: at_message: 'Comit' is no kind of message"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "said"), one_in(5, NO_FAULTS))
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
def test_any_file_is_a_scenario_or_one_line_of_refusal(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, object]]
) -> None:
    lines = [head.format(key) if head else f"{key} = {json.dumps(value)}" for head, key, value in rows]
    file = write(tmp_path_factory.getbasetemp(), "\n".join(lines))
    try:
        assert read_scenario(file).scenario.peers > 0
    except TableError as error:
        assert "\n" not in str(error)  # noqa: PT017  # either outcome is right
        assert len(str(error)) < 500  # noqa: PT017


REFUSED = [
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
    ("simulate --sweep 3 --steps 4", "--sweep draws all but seed and protocol: leave out --steps; see samovar"),
    ("simulate nowhere.py --sweep 3", "--sweep draws its scenarios: leave out TASK and --scenario; see samovar"),
]


@pytest.mark.parametrize(("arguments", "said"), one_in(3, REFUSED))
def test_bad_arguments_of_simulate_are_one_line_and_exit_code_2(
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
