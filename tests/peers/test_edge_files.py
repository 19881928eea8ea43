"""A file of edges becomes part of the run's settings, and a bad one is refused in one line that names file and line."""

from pathlib import Path

import pytest
from live import verb

from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.fields import SettingsError

GRAPH = """# A ring of four and a chord
0 1
1,2    # the middle
2 3

3 0
0\t2
"""


def settings(file: Path, **more: object) -> Settings:
    return Settings(protocol="gossip", peers=4, topology=f"edges:{file}", **more)


def test_a_newcomer_gets_the_edges_with_the_settings_and_needs_no_file(tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text(GRAPH)
    of_run = settings(file)
    file.unlink()
    assert of_run.plain()["topology"] == "edges:0-1,0-2,0-3,1-2,2-3"
    for copy in (Settings(protocol="gossip").with_agreed(of_run.agreed_json()), Settings.from_json(of_run.to_json())):
        assert copy.own == of_run.own
        assert copy.own.topology.value == of_run.own.topology.value


def test_a_file_of_weights_is_read_as_networkx_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "graph.txt"
    file.write_text("0 1 0.5\n1 2 2\n2 3 1e-3\n")
    assert settings(file).plain()["topology"] == "edges:0-1*0.5,1-2*2,2-3*0.001"


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"0 1\n1 2 3 4\n", ", line 2: two peer numbers, and at most a weight, were due, got '1 2 3 4'"),
        (b"0 1\n\n1 x\n", ", line 3: two peer numbers, and at most a weight, were due, got '1 x'"),
        (b"0 1\n-1 2\n", ", line 2: two peer numbers"),
        (b"0 1\n2 2\n", ", line 2: peer 2 cannot be its own neighbour"),
        (b"0 1\n1 0\n", ", line 2: the edge of 0 and 1 is there already"),
        (b"0 1 1\n1 2\n", ", line 2: either all edges have a weight or none has one"),
        (b"0 1 nan\n", ", line 1: 'nan' is no weight"),
        (b"0 1 0\n", ", line 1: a weight is a number"),
        (b"0 999999999\n", ", line 1: peers have numbers up to 99999, got 999999999"),
        (b"0 1\n2 3\n", ": no edges lead from peer 0 to peer 2"),
        (b"# nothing\n", ": it has no edges"),
        (b"\xff\xfe0 1", ": it is no text in UTF-8"),
        (b"0 1\n" * (1 << 19), ": a file of edges has at most 1048576 bytes"),
        ("".join(f"0 {one}\n" for one in range(1, 3000)).encode(), ": 2999 edges are"),
    ],
)
def test_a_bad_file_is_refused_in_one_line_that_names_file_and_line(tmp_path: Path, content: bytes, why: str) -> None:
    file = tmp_path / "graph.txt"
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=r"^[^\n]+$") as refused:
        settings(file)
    assert f"{file}{why}" in str(refused.value)


def test_a_file_that_is_not_there_and_peers_that_the_run_has_not_are_told(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"graph\.txt: cannot be read: no such file or directory"):
        settings(tmp_path / "graph.txt")
    with pytest.raises(SettingsError, match="has edges of peer 7, beyond the 4 peers, counted from 0"):
        Settings(protocol="gossip", peers=4, topology="edges:0-7")


def test_the_edges_are_planned_and_drawn(tmp_path: Path) -> None:
    file, drawn = tmp_path / "graph.txt", tmp_path / "plan.svg"
    file.write_text(GRAPH)
    gossip = ("plan", "--size", "1MB", "--protocol", "gossip", "--topology", f"edges:{file}")
    assert verb(*gossip, "--peers", "4", "--svg", drawn).exit_code == 0
    assert drawn.read_text().count("<circle") == 4
    assert "the edges of 1 peer beyond --peers 3 are left out" in verb(*gossip, "--peers", "3").stdout
    ended = verb("plan", "--size", "1MB", "--protocol", "gossip", "--topology", f"edges:{tmp_path}/none.txt")
    assert (ended.exit_code, ended.stderr.count("Traceback")) == (2, 0)
    assert "none.txt: cannot be read" in " ".join(ended.stderr.split())
