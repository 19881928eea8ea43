"""The gallery of scenarios keeps its word, and the page of a simulated run shows its world."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from live import ROOT, verb

from samovar.peers.records.run import Run, read_run
from samovar.peers.records.scene import SCENE_FILE
from samovar.peers.report.write import page

GALLERY = ROOT / "examples" / "scenarios"


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Every scenario of the gallery, played."""
    folder, runs = tmp_path_factory.mktemp("gallery"), {}
    for file in sorted(GALLERY.glob("*.toml")):
        result = verb("simulate", "--scenario", file, "--run", folder / file.stem, "--quiet")
        assert result.exit_code == 0, result.output
        runs[file.stem] = read_run(folder / file.stem)
    return runs


def test_the_gallery_is_whole(gallery: dict[str, Run]) -> None:
    assert list(gallery) == ["churn", "flaky-mobile", "home-connections", "two-datacenters"]
    for run in gallery.values():
        assert run.result is not None
        assert run.result.metrics["accuracy"] > 0.85
        assert run.result.exchanges == max(record.version for record in run.exchanges)


def test_what_befalls_the_gallery_is_what_its_files_say(gallery: dict[str, Run]) -> None:
    lost = {name: {lost.peer: lost.why for lost in run.result.lost} for name, run in gallery.items() if run.result}
    assert set(lost["two-datacenters"]) == {"5", "6", "7"}
    assert set(lost["home-connections"]) == {"6"}
    assert set(lost["churn"]) == {"3", "4", "5", "7"}
    assert lost["flaky-mobile"]["6"].startswith("out of memory")
    kinds = {name: {trouble.kind for trouble in run.scene.troubles} for name, run in gallery.items() if run.scene}
    assert kinds == {
        "two-datacenters": {"cut_off"},
        "home-connections": {"link", "crash"},
        "churn": {"restart", "link", "crash"},
        "flaky-mobile": {"noise", "cut_off", "slow", "pause"},
    }


def test_who_is_lost_is_lost_after_it_is_gone(gallery: dict[str, Run]) -> None:
    """Also when a peer tells of it that came late, and can only guess when the run began."""
    churn = gallery["churn"]
    assert churn.scene is not None
    gone_s = {stay.peer: stay.until_s for stay in reversed(churn.scene.stays)}
    told = [(event.subject, event.time_s) for event in churn.events if event.event == "lost"]
    assert {event.peer for event in churn.events if event.event == "lost"} >= {"0", "9"}
    assert all(time_s > gone_s[peer] for peer, time_s in told)


def test_every_byte_of_a_round_is_on_some_link(gallery: dict[str, Run]) -> None:
    for run in gallery.values():
        assert run.scene is not None
        up = sum(place.bytes_up for place in run.scene.places)
        assert up == sum(place.bytes_down for place in run.scene.places)
        assert up >= sum(record.bytes_sent for record in run.exchanges) > 0.5 * up


def test_a_page_shows_the_network_who_was_up_and_the_bytes(gallery: dict[str, Run]) -> None:
    for run in gallery.values():
        assert run.scene is not None
        html = (run.folder / "report.html").read_text()
        for place in run.scene.places:
            assert f">{place.peer}</text>" in html
        for heading in ("The network", "Who was up when", "Bytes on each connection", "Loss over time"):
            assert f">{heading}</h" in html
        figures = json.loads(html.split('<script type="application/json" id="figures">')[1].split("</script>")[0])
        assert {"presence-time", "bytes", "loss-time"} <= set(figures)
        ups = next(bars for bars in figures["presence-time"]["data"] if bars["name"] == "up")
        assert len(ups["y"]) == len(run.scene.stays)
        sent = figures["bytes"]["data"][0]["x"]
        assert len(sent) == len(run.scene.places) + len(run.scene.cables)
    churn = gallery["churn"].scene
    assert churn is not None
    assert sorted(stay.peer for stay in churn.stays) == sorted("0 1 2 3 3 4 5 5 6 7 7 8 9".split())


def test_a_spoiled_scene_is_one_line_and_a_hostile_one_is_harmless(gallery: dict[str, Run]) -> None:
    run = gallery["two-datacenters"]
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


def test_a_map_of_many_peers_draws_some_and_counts_the_rest(gallery: dict[str, Run]) -> None:
    run = gallery["churn"]
    assert run.scene is not None
    places = tuple(replace(run.scene.places[0], peer=str(index), site=f"s{index % 40}") for index in range(4000))
    html = page(replace(run, scene=replace(run.scene, places=places)), "")
    assert html.count('class="peer') == 12 * 4
    assert "and 28 more sites" in html
    assert html.count("and 96 more peers") == 12
