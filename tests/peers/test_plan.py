"""``samovar plan``: every schedule's time on given links, the fastest of them, and a picture of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from live import verb

from samovar.aggregation.mixing.registry import GIVEN_BY_NAME
from samovar.aggregation.schedules.cost import Links, predict
from samovar.aggregation.schedules.registry import SCHEDULES
from samovar.peers.settings.link_text import parse_duration, parse_link, parse_size

SVG = "{http://www.w3.org/2000/svg}"


def planned(*arguments: object) -> dict[str, Any]:
    result = verb("plan", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def test_every_schedule_is_predicted_and_the_fastest_comes_first() -> None:
    found = planned("--peers", 8, "--size", "4MB", "--link", "50mbit/10mbit,20ms,4ms", "--overhead", "1ms")
    assert (found["peers"], found["size_bytes"], found["link"]) == (8, 4_000_000, "50mbit/10mbit,20ms,4ms")
    rows = {row["schedule"]: row for row in found["schedules"]}
    assert set(rows) == set(SCHEDULES)
    seconds = [row["seconds"] for row in found["schedules"]]
    assert seconds == sorted(seconds)
    assert found["best"] == found["schedules"][0]["schedule"]
    links = Links(alpha_s=(0.022,) * 8, up_Bps=(1.25e6,) * 8, down_Bps=(6.25e6,) * 8, overhead_s=1e-3)
    for name, row in rows.items():
        assert row["seconds"] == pytest.approx(predict(SCHEDULES[name], links, 4_000_000, found["chunk_bytes"]))
    assert (rows["ring"]["messages"], rows["ring"]["bytes"]) == ([14, 14], [7_000_000, 7_000_000])
    assert (rows["naive"]["messages"], rows["naive"]["bytes"]) == ([1, 7], [4_000_000, 28_000_000])


def test_few_messages_win_for_a_small_model_and_few_bytes_for_a_large_one() -> None:
    small, large = (planned("--peers", 32, "--size", size, "--link", "1gbit,1ms") for size in ("10kB", "100MB"))
    for found, slowest in ((small, "ring"), (large, "naive")):
        assert found["schedules"][-1]["schedule"] == slowest
    assert large["schedules"][0]["seconds"] == pytest.approx(2 * 31 / 32 * 0.8, rel=0.03)


def test_links_in_turn_have_parts_by_bandwidth() -> None:
    arguments = ("--peers", 4, "--size", "8MB", "--link", "100mbit,5ms;100mbit,5ms;100mbit,5ms;10mbit,5ms")
    found = planned(*arguments)
    rows = {row["schedule"]: row for row in found["schedules"]}
    assert rows["sharded"]["shares"] == pytest.approx([1 / 3, 1 / 3, 1 / 3, 0.0])
    assert {name for name, row in rows.items() if row["shares"] is not None} == {"sharded"}
    assert rows["sharded"]["bytes"] == pytest.approx([8e6, 8e6 * 5 / 3], abs=2)
    assert rows["sharded"]["seconds"] == pytest.approx(8e6 / 1.25e6, rel=0.1)
    assert rows["ring"]["seconds"] == pytest.approx(1.5 * 8e6 / 1.25e6, rel=0.1)
    said = verb("plan", *arguments).stdout.splitlines()
    assert said[0].endswith("among 4 peers, on 100mbit,5ms;100mbit,5ms;100mbit,5ms;10mbit,5ms in turn")
    assert said[-1] == "sharded: a peer sums up 0% to 33% of it"


def test_people_get_a_table_that_marks_the_choice() -> None:
    result = verb("plan", "--peers", 7, "--size", "1MiB", "--link", "100mbit,5ms")
    assert (result.exit_code, result.stderr) == (0, "")
    title, _, head, *rows = result.stdout.splitlines()
    assert title == "allreduce of 1.05 MB among 7 peers, each on 100mbit,5ms"
    assert head.split() == ["schedule", "time", "messages", "a", "peer", "sent", "by", "a", "peer"]
    assert [row.startswith("→") for row in rows] == [True] + [False] * (len(SCHEDULES) - 1)
    assert {row.removeprefix("→").split()[0] for row in rows} == set(SCHEDULES)
    (naive,) = [row for row in rows if "naive" in row]
    assert "1 to 6" in naive
    assert "1.05 MB to 6.29 MB" in naive


def test_plan_names_the_limits_that_the_number_of_peers_exceeds() -> None:
    def told(peers: int) -> list[str]:
        lines = verb("plan", "--size", "1KB", "--peers", peers).stdout.splitlines()
        return [line for line in lines if line.startswith("with more than")]

    assert told(8) == []
    assert told(9) == ["with more than 8 peers short vectors take two hops instead of one"]
    assert [line.split()[3] for line in told(65)] == ["64", "64", "16", "8"]


def test_without_svg_nothing_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert planned("--size", "1MB")["svg"] is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("peers", [1, 2, 12, 40])
def test_the_drawing_has_a_bar_for_each_schedule_and_a_row_for_each_peer(
    peers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("plan", "--peers", peers, "--size", "10kB", "--link", "1gbit,1ms")
    said = verb(*arguments, "--svg", "<my>.svg").stdout
    assert said.splitlines()[-1] == "drawn: <my>.svg"
    text = Path("<my>.svg").read_text("utf-8")
    assert "prefers-color-scheme: dark" in text
    root = ElementTree.fromstring(text)
    assert root.findtext(f"{SVG}title") == verb(*arguments).stdout.splitlines()[0]
    kinds = [shape.get("class") for shape in root]
    assert (kinds.count("best"), kinds.count("bar")) == (1, len(SCHEDULES) - 1)
    told = [shape.text for shape in root.findall(f"{SVG}text")]
    assert set(SCHEDULES) <= set(told)
    assert ("and 8 more peers" in told) == (peers == 40)
    strokes = [shape for shape in root.findall(f"{SVG}path") if shape.get("class") in ("sum", "spread")]
    assert len(strokes) == (2 if peers == 1 else 2 + 2 * min(peers, 32))  # two stand in the legend


def test_the_file_is_called_plan_svg_by_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert verb("plan", "--size", "1MB", "--json", "--svg").exit_code == 0
    ElementTree.parse(tmp_path / "plan.svg")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("", "missing option '--size'"),
        ("--size 100", "'100' is not a size: a number and one of b, kib"),
        ("--size 0MB", "a size of '0MB' is nothing to send"),
        ("--size many", "'many' is not a size"),
        ("--size -1MB", "'-1MB' is not a size"),
        ("--size 1MB --peers 0", "'--peers': 0 is not in the range x>=1"),
        (
            "--size 1MB --peers 1025",
            "1025 are too many to plan for: at most 1024 know each other",
        ),
        ("--size 1MB --peers few", "'--peers': 'few' is not a valid integer"),
        ("--size 1MB --link 1gbit", "'1gbit' is no link: write BANDWIDTH,LATENCY"),
        ("--size 1MB --link 0mbit,1ms", "a bandwidth of '0mbit' carries nothing"),
        ("--size 1MB --link 1gbit,1", "'1' is not a duration"),
        ("--size 1MB --overhead 3", "'3' is not a duration"),
        ("--size 1MB --svg nowhere/plan.svg", "nowhere/plan.svg"),
        ("--size 1MB --pears 3", "no such option"),
    ],
)
def test_a_bad_argument_of_plan_is_told_in_one_line(
    arguments: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = verb("plan", *arguments.split())
    assert (result.exit_code, result.stdout) == (2, ""), result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("samovar: ")
    assert said.lower() in line.lower()
    assert list(tmp_path.iterdir()) == []


def test_a_unit_has_its_usual_meaning() -> None:
    assert (parse_size("100MB"), parse_size("64KiB"), parse_duration("100us")) == (100_000_000, 65536, 1e-4)
    assert parse_link("50mbit/10mbit,20ms").receives_Bps == 6.25e6


def gossip_planned(*arguments: object) -> dict[str, Any]:
    return planned("--protocol", "gossip", *arguments)


def test_every_topology_is_predicted_and_the_fastest_comes_first() -> None:
    found = gossip_planned("--peers", 64, "--size", "100MB", "--link", "100mbit,5ms")
    rows = {row["topology"]: row for row in found["topologies"]}
    assert set(rows) == set(GIVEN_BY_NAME)
    seconds = [row["seconds"] for row in found["topologies"]]
    assert seconds == sorted(seconds)
    assert found["best"] == found["topologies"][0]["topology"] == "one_peer_exponential"
    assert rows["one_peer_exponential"]["rounds"] == 6
    assert rows["ring"]["gap"] == pytest.approx(1 - 0.9968, abs=1e-4)
    assert rows["ring"]["round_s"] == pytest.approx(0.01 + 2 * 8, rel=0.01)
    assert rows["ring"]["bytes"] == rows["ring"]["rounds"] * 2e8
    assert "50 peers, and 14 that hang on two of it" in rows["slim_fly"]["note"]


def test_one_topology_is_planned_with_its_options() -> None:
    (row,) = gossip_planned("--peers", 20, "--size", "1MB", "--topology", "regular:6")["topologies"]
    assert (row["topology"], row["neighbours"]) == ("regular:6", 6)


def test_a_topology_that_does_not_exist_is_refused_in_one_line() -> None:
    ended = verb("plan", "--size", "1MB", "--protocol", "gossip", "--topology", "moebius")
    assert ended.exit_code == 2
    assert "there is no topology 'moebius'" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_the_graphs_are_drawn(tmp_path: Path) -> None:
    drawn = tmp_path / "plan.svg"
    ended = verb("plan", "--size", "1MB", "--peers", 12, "--protocol", "gossip", "--svg", drawn)
    assert f"drawn: {drawn}" in ended.stdout.replace("\n", "")
    circles = list(ElementTree.parse(drawn).getroot().iter(f"{SVG}circle"))
    assert len(circles) == 12 * len(GIVEN_BY_NAME)
