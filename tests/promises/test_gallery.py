"""The gallery of scenarios keeps its word, and the page of a simulated run shows its world."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from live import ROOT, verb
from tiers import soaked

from samovar.peers.records.run import Run, read_run
from samovar.peers.records.scene import SCENE_FILE
from samovar.peers.report.write import page

GALLERY = ROOT / "examples" / "scenarios"
LOST = {
    "churn": {"3", "4", "5", "7"},
    "flaky-mobile": {"6"},
    "home-connections": {"6"},
    "two-datacenters": {"5", "6", "7"},
}
KINDS = {
    "churn": {"restart", "link", "crash"},
    "flaky-mobile": {"noise", "cut_off", "slow", "pause"},
    "home-connections": {"link", "crash"},
    "two-datacenters": {"cut_off"},
}
Play = Callable[[str], Run]
each = pytest.mark.parametrize("name", [name if name == "churn" else soaked(name) for name in LOST])
"""Each scenario takes some seconds; that with most faults and a latecomer is played for each change."""


@pytest.fixture(scope="module")
def play(tmp_path_factory: pytest.TempPathFactory) -> Play:
    """The run of a scenario of the gallery, which is played once."""
    folder = tmp_path_factory.mktemp("gallery")

    @functools.cache
    def played(name: str) -> Run:
        result = verb("simulate", "--scenario", GALLERY / f"{name}.toml", "--run", folder / name, "--quiet")
        assert result.exit_code == 0, result.output
        return read_run(folder / name)

    return played


def test_the_gallery_is_whole() -> None:
    assert sorted(file.stem for file in GALLERY.glob("*.toml")) == [*LOST] == [*KINDS]


@each
def test_a_scenario_of_the_gallery_trains_with_the_faults_and_losses_of_its_file(name: str, play: Play) -> None:
    run = play(name)
    assert run.result is not None
    assert run.scene is not None
    assert run.result.metrics["accuracy"] > 0.85
    assert run.result.exchanges == max(record.version for record in run.exchanges)
    lost = {lost.peer: lost.why for lost in run.result.lost}
    assert lost.keys() >= LOST[name]
    if name == "flaky-mobile":
        assert lost["6"].startswith("out of memory")
    else:
        assert lost.keys() == LOST[name]
    assert {trouble.kind for trouble in run.scene.troubles} == KINDS[name]


def test_a_peer_is_told_as_lost_only_after_it_has_gone(play: Play) -> None:
    """Also when a peer tells of it that came late, and can only guess when the run began."""
    churn = play("churn")
    assert churn.scene is not None
    gone_s = {stay.peer: stay.until_s for stay in reversed(churn.scene.stays)}
    told = [(event.subject, event.time_s) for event in churn.events if event.event == "lost"]
    assert {event.peer for event in churn.events if event.event == "lost"} >= {"0", "9"}
    assert all(time_s > gone_s[peer] for peer, time_s in told)


@each
def test_every_byte_of_a_round_is_on_some_link(name: str, play: Play) -> None:
    run = play(name)
    assert run.scene is not None
    up = sum(place.bytes_up for place in run.scene.places)
    assert up == sum(place.bytes_down for place in run.scene.places)
    assert up >= sum(record.bytes_sent for record in run.exchanges) > 0.5 * up


@each
def test_a_page_shows_the_network_the_live_peers_and_the_bytes(name: str, play: Play) -> None:
    run = play(name)
    assert run.scene is not None
    html = (run.folder / "report.html").read_text()
    for place in run.scene.places:
        assert f">{place.peer}</text>" in html
    for heading in ("The network", "Peers over time", "Bytes on each connection", "Loss over time"):
        assert f">{heading}</h" in html
    figures = json.loads(html.split('<script type="application/json" id="figures">')[1].split("</script>")[0])
    assert {"presence-time", "bytes", "loss-time"} <= set(figures)
    ups = next(bars for bars in figures["presence-time"]["data"] if bars["name"] == "up")
    assert len(ups["y"]) == len(run.scene.stays)
    sent = figures["bytes"]["data"][0]["x"]
    assert len(sent) == len(run.scene.places) + len(run.scene.cables)
    if name == "churn":
        assert sorted(stay.peer for stay in run.scene.stays) == sorted("0 1 2 3 3 4 5 5 6 7 7 8 9".split())


def test_a_spoiled_scene_is_one_line_and_a_hostile_one_is_harmless(play: Play) -> None:
    run = play("churn")
    assert run.scene is not None
    evil = "<script>alert(1)</script>"
    places = tuple(replace(place, site=evil, link=evil, peer=evil) for place in run.scene.places)
    stays = tuple(replace(stay, peer=evil, why=evil) for stay in run.scene.stays)
    troubles = tuple(replace(trouble, kind=evil, who=(evil,)) for trouble in run.scene.troubles)
    cables = tuple(replace(cable, a=evil, b=evil, link=evil) for cable in run.scene.cables)
    scene = replace(run.scene, places=places, stays=stays, troubles=troubles, cables=cables, broken=evil)
    assert evil not in page(replace(run, scene=scene), "")
    file = run.folder / SCENE_FILE
    whole = file.read_text()
    try:
        for spoiled in ("", "[]", whole.replace('"lasted_s"', '"lasted"'), whole.replace('"finished"', '"eaten"')):
            file.write_text(spoiled)
            with pytest.raises(ValueError, match=rf"^{re.escape(str(file))}: ") as error:
                read_run(run.folder)
            assert "\n" not in str(error.value)
    finally:
        file.write_text(whole)


def test_a_map_of_many_peers_draws_some_and_counts_the_rest(play: Play) -> None:
    run = play("churn")
    assert run.scene is not None
    places = tuple(replace(run.scene.places[0], peer=str(index), site=f"s{index % 40}") for index in range(4000))
    html = page(replace(run, scene=replace(run.scene, places=places)), "")
    assert html.count('class="peer') == 12 * 4
    assert "and 28 more sites" in html
    assert html.count("and 96 more peers") == 12
