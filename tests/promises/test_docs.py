"""The pages under docs/ are true: their commands are run as they stand there, one after the other."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import examples, words
from live import ROOT, verb
from record_page import page as record_page
from synthetic import synthetic_run
from tiers import soaked

from samovar.peers.records.consensus import Consensus
from samovar.peers.records.elsewhere import Elsewhere
from samovar.peers.records.records import SCHEMA
from samovar.peers.records.result import Best
from samovar.peers.records.run import peer_file
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import NAMES
from samovar.sims.scenarios.scenario import ROLES, Kind, Scenario
from samovar.sims.sweeps.promises import promises

CONSENSUS = Consensus(time_s=1.0, version=1, peers=2, distance=0.1)
BEST = Best(metric="accuracy", value=0.5, at=1, file="best.safetensors")
ELSEWHERE = Elsewhere(peer="erin", exchanges=1, joined_s=1.0)
PAGES = {page.name: page.read_text("utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands() -> Iterator[tuple[str, str]]:
    for name, text in PAGES.items():
        for block in blocks(text, "sh"):
            yield from ((name, line) for line in block.splitlines())


@pytest.fixture(scope="module", params=[True, soaked(False)], ids=["quick", "whole"])
def quick(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture(scope="module")
def homes(quick: bool, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """For each page where its reader stands: beside the examples, with the page's own files, which begin with their
    name."""
    made = {}
    for name, text in PAGES.items():
        made[name] = tmp_path_factory.mktemp(name.removesuffix(".md"))
        examples(made[name], quick)
        for block in blocks(text, "toml"):
            file, _, _ = block.removeprefix("# ").partition("\n")
            assert re.fullmatch(r"[\w-]+\.toml", file), f"{name}: {block[:40]!r} does not begin with its name"
            (made[name] / file).write_text(block)
    return made


def test_there_are_commands_to_run() -> None:
    assert len([name for name, _ in commands() if name == "simulation.md"]) >= 6


@pytest.mark.parametrize(("page", "command"), list(commands()))
def test_a_command_of_a_page_works(
    page: str, command: str, quick: bool, homes: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(homes[page])
    program, *arguments = words(command, quick)
    assert program == "samovar"
    ended = verb(*arguments)
    assert ended.exit_code == 0, ended.output


def test_every_kind_of_fault_and_every_role_is_on_the_page() -> None:
    page = PAGES["simulation.md"]
    table = {kind for row in re.findall(r"^\| (`.*?`) \|", page, re.MULTILINE) for kind in re.findall(r"`(\w+)`", row)}
    assert table == set(Kind)
    assert all(role in page for role in ROLES)


def test_the_promises_on_the_page_are_promises() -> None:
    page, kept = " ".join(PAGES["simulation.md"].split()), promises(Scenario.plain(Settings(device="cpu")))
    for promise in (
        "all who commit a round commit the same bits",
        "every contribution counts once",
        "a site takes the mean of what each brought once",
        "nothing of an old generation is applied",
        "one generation has one view",
        "each message is handed on once and in order",
        "living peers finish",
    ):
        assert promise in page
        assert promise in kept


def test_every_file_that_a_page_points_to_is_there() -> None:
    for name, text in PAGES.items():
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (ROOT / "docs" / target).exists(), f"{name}: {target}"


def test_the_architecture_page_names_every_folder_and_its_picture_too() -> None:
    folders = [
        one for layer in ("aggregation", "protocols", "peers", "sims") for one in (ROOT / layer).rglob("__init__.py")
    ]
    library = sorted(str(one.parent.relative_to(ROOT)) for one in folders)
    page, picture = PAGES["architecture.md"], (ROOT / "docs" / "architecture.svg").read_text("utf-8")
    assert len(library) > 25
    for folder in library:
        layer, _, name = folder.partition("/")
        assert f"| `{folder}`" in page or f"| `{layer}/`" in page
        assert f">{name or layer + '/'}<" in picture, folder
    named = re.findall(r"^\| `([a-z_/]+)`", page, re.MULTILINE)
    assert sorted(one.rstrip("/") for one in named) == library
    for path in re.findall(r"`((?:aggregation|protocols|peers|sims)/[a-z_/]+\.py)`", page):
        assert (ROOT / path).exists(), path


def test_the_page_on_records_is_made_from_their_declarations() -> None:
    assert PAGES["records.md"] == record_page()
    assert f"This is version {SCHEMA}." in PAGES["records.md"]
    assert not re.search(r"\|  \|$", PAGES["records.md"], re.MULTILINE), "a field is not documented"


def test_the_page_on_records_has_the_keys_of_a_run_s_files_and_no_others(tmp_path: Path) -> None:
    run = synthetic_run(tmp_path)
    rows = [json.loads(text) for text in peer_file(tmp_path, "alice").read_text().splitlines()]
    lines = {row["kind"]: row for row in rows}
    simulated = dataclasses.replace(
        run.result, virtual_s=1.0, digest="", broken="", best=BEST, elsewhere=(ELSEWHERE,), consensus=CONSENSUS
    )
    result = json.loads(simulated.to_json())
    missing = next(row["missing"][0] for row in rows if row.get("missing"))
    written = {
        "A header": lines["schema"].keys() - {"kind"},
        "An exchange": lines["round"].keys() - {"kind", "accuracy", *lines["round"]["details"]},
        "A missing peer": missing.keys(),
        "An event": lines["event"].keys() - {"kind"},
        "The result": result.keys() - {"schema", "accuracy", "accuracy_round"},
        "A peer": result["peers"][0].keys(),
        "A lost peer": result["lost"][0].keys(),
        "The best model": result["best"].keys(),
        "Consensus": result["consensus"].keys(),
        "A peer elsewhere": result["elsewhere"][0].keys(),
    }
    sections = PAGES["records.md"].split("\n## ")[1:]
    told = {re.split(r" \(|\n", text)[0]: {*re.findall(r"^\| `(\w+)`", text, re.MULTILINE)} for text in sections}
    assert told == {name: {"exchanges" if key == "rounds" else key for key in keys} for name, keys in written.items()}


def test_the_page_on_tasks_has_every_function_and_constant() -> None:
    rows = re.findall(r"^\| (`.*?`) \|", PAGES["tasks.md"], re.MULTILINE) + re.findall(
        r"or `\w+\(.*?`", PAGES["tasks.md"]
    )
    assert {name for row in rows for name in re.findall(r"`(\w+)", row)} == {*NAMES}


def test_the_task_of_the_page_on_tasks_trains(tmp_path: Path) -> None:
    block, _ = blocks(PAGES["tasks.md"], "python")
    (tmp_path / "spirals.py").write_text(block)
    command = ["simulate", str(tmp_path / "spirals.py"), "--peers", "2", "--steps", "160", "--period", "8", "--json"]
    ended = verb(*command, "--run", str(tmp_path / "run"))
    assert ended.exit_code == 0, ended.output
    metrics = json.loads(ended.stdout)["metrics"]
    assert list(metrics) == ["error", "log loss"]
    assert metrics["error"] < 0.1
