"""What a user is told of scripts that are still at work after others have ended."""

from __future__ import annotations

import types
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from samovar.peers.launch.at_work import AtWork
from samovar.peers.launch.spawn import Process
from samovar.peers.launch.spawned import Spawned
from samovar.peers.launch.spec import founding_orders
from samovar.peers.run_settings.settings import Settings

ENDS = "the run ends with the last script, or by Ctrl-C"


@pytest.fixture
def peers(tmp_path: Path) -> list[Spawned]:
    """Four, which run."""
    orders, running = founding_orders(Path("mine.py"), Settings(peers=4), tmp_path)[0], {"returncode": None}
    return [Spawned(one, process=cast(Process, types.SimpleNamespace(**running))) for one in orders]


def ends(peer: Spawned) -> None:
    peer.exit_code, peer.process = 0, cast(Process, types.SimpleNamespace(returncode=0))


def told(at_work: AtWork, now: list[float], until_s: int) -> Sequence[tuple[float, str]]:
    """The lines of the seconds until then, each with its time."""
    found = []
    while now[0] < until_s:
        now[0] += 1.0
        found += [(now[0], line)] if (line := at_work.line()) else []
    return found


def test_scripts_are_named_once_another_one_has_ended_and_then_ever_more_rarely(peers: list[Spawned]) -> None:
    now = [0.0]
    at_work = AtWork(peers, 5.0, lambda: now[0])
    assert told(at_work, now, 100) == []
    ends(peers[3])
    peers[0].ended = {"finished": True}
    lines = told(at_work, now, 200)
    assert [at for at, _ in lines] == [105, 115, 135, 175]
    assert {line for _, line in lines} == {
        f"still at work: the scripts of peer 0 (has left the run), 1, 2; {ENDS}",
    }
    for peer in peers[1:]:
        ends(peer)
    assert [line for _, line in told(at_work, now, 300)] == [
        f"still at work: the script of peer 0 (has left the run); {ENDS}"
    ]
    ends(peers[0])
    assert told(at_work, now, 9000) == []


def test_a_script_that_is_heard_of_and_a_server_are_not_named(peers: list[Spawned]) -> None:
    now = [0.0]
    peers[2].orders = replace(peers[2].orders, role="server")
    at_work = AtWork(peers, 5.0, lambda: now[0])
    ends(peers[3])
    for second in range(20):
        peers[0].heard_s = peers[1].heard_s = float(second)
        assert told(at_work, now, second) == []
    peers[0].heard_s = 24.0
    assert told(at_work, now, 25) == [(24.0, f"still at work: the script of peer 1; {ENDS}")]


def test_a_server_that_ends_has_no_script_named(peers: list[Spawned]) -> None:
    now = [0.0]
    peers[3].orders = replace(peers[3].orders, role="server")
    at_work = AtWork(peers, 5.0, lambda: now[0])
    ends(peers[3])
    assert told(at_work, now, 100) == []


def test_of_many_scripts_the_first_are_named(tmp_path: Path) -> None:
    now, orders = [0.0], founding_orders(Path("mine.py"), Settings(peers=9), tmp_path)[0]
    peers = [Spawned(one, process=cast(Process, types.SimpleNamespace(returncode=None))) for one in orders]
    at_work = AtWork(peers, 5.0, lambda: now[0])
    ends(peers[0])
    assert told(at_work, now, 5) == [(5.0, f"still at work: the scripts of peer 1, 2, 3, 5 others; {ENDS}")]
