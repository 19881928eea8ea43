"""The list of mutants is one of the code of today, and what hunts them counts only what a mutant alone makes fail."""

import ast
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from mutant_list import ROOT, SEEDS, Edit, Mutant, Tree, fingerprint_of_runs, mutants, not_copied
from mutant_order import Imports, batches
from mutant_page import told
from mutant_reach import Reach, with_marks
from mutant_results import Found, Results
from mutants import Hunt
from tiers import left_out, soak

every_mutant = pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.breaks)


@every_mutant
def test_each_mutant_is_one_of_the_code_of_today(mutant: Mutant) -> None:
    for edit in mutant.edits:
        mutated = edit.applied(ROOT)
        assert ast.dump(ast.parse(mutated)) != ast.dump(ast.parse((ROOT / edit.file).read_text("utf-8")))


def test_a_line_that_is_gone_or_there_twice_is_told(tmp_path: Path) -> None:
    (tmp_path / "sum.py").write_text("x = 1\ny = 1\n")
    with pytest.raises(ValueError, match=r"sum.py has 0 times: x = 2"):
        Edit("sum.py", "x = 2", "x = 3").applied(tmp_path)
    with pytest.raises(ValueError, match=r"sum.py has 2 times: = 1"):
        Edit("sum.py", "= 1", "= 3").applied(tmp_path)
    assert Edit("sum.py", "x = 1", "x = 3").applied(tmp_path) == "x = 3\ny = 1\n"


def test_a_copy_of_the_tree_lacks_the_runs_of_its_root_alone() -> None:
    """`tests/support/runs` holds runs that tests read."""
    assert not_copied(str(ROOT), ["runs", "tests", ".git"]) == {"runs", ".git"}
    assert not_copied(str(ROOT / "tests/support"), ["runs", "runs.pyc.17", "live.py"]) == {"runs.pyc.17"}


def test_there_are_mutants_of_each_layer_and_each_has_a_name_of_its_own() -> None:
    listed = mutants()
    assert Counter(mutant.layer for mutant in listed).keys() == {"aggregation", "protocols", "peers"}
    assert len(listed) >= 40
    assert len({mutant.breaks for mutant in listed}) == len(listed)


KILLERS = {by for by in told("tests").values() if by.startswith("test_")}
NO_MORE = {"test_sweep.py::test_every_promise_holds_for_any_seed[21]"}
"""These seeds draw other scenarios now, in which the mutant does no harm."""


def test_every_test_that_kills_a_mutant_is_in_make_test() -> None:
    """`make test` leaves none of it out; a part of the tests shows this of its files only."""
    assert len(KILLERS) > 30
    assert left_out & KILLERS <= NO_MORE


@soak
def test_tests_that_import_the_file_run_before_those_that_only_reach_it() -> None:
    mutant = next(one for one in mutants() if one.edits[0].file == "aggregation/mean.py")
    order = [file for batch in batches(Imports(), mutant) for file in batch]
    assert len(order) == len(set(order)) > 80
    assert Path(order[0]).stem == "test_mean"
    places = {Path(file).stem: place for place, file in enumerate(order)}
    assert places["test_mean"] < places["test_local_sgd"] < places["test_wire"] < places["test_processes"]
    assert "test_mutants" not in places, "it notices every mutant, as the line is another"


PASSES = "def test_it():\n    assert True\n"
NOTICES = """def test_it():
    from samovar.aggregation.options import spelled
    assert spelled("top-k") == "top_k"
"""
NEVER_PASSES = "def test_it():\n    assert False\n"
UNSPELLED = Mutant("names are as they are typed", (Edit("aggregation/options.py", 'replace("-", "_")', "strip()"),))


@pytest.fixture
def hunt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Found, Results]]:
    """Looks for what kills a mutant among tests of these texts, one file after the other."""
    monkeypatch.setattr("mutant_results.BUILD", tmp_path / "build")
    tree, results = Tree(tmp_path), Results("tests")
    for file in [*(tree.root / "tests").rglob("test_*.py"), tree.root / "tests/conftest.py"]:
        file.unlink()

    def by(*texts: str) -> tuple[Found, Results]:
        files = [[f"tests/test_{number}.py"] for number in range(len(texts))]
        for (file,), text in zip(files, texts, strict=True):
            (tree.root / file).write_text(text)
        monkeypatch.setattr("mutants.batches", lambda *_: files)
        found = Hunt(results, limit_s=200).by_tests(tree, UNSPELLED)
        edited = UNSPELLED.edits[0].file
        assert (tree.root / edited).read_text() == (ROOT / edited).read_text(), "the tree is as it was"
        return found, Results("tests")

    return by


def test_the_first_test_that_fails_with_a_mutant_only_kills_it(hunt: Callable[..., tuple[Found, Results]]) -> None:
    found, kept = hunt(PASSES, NEVER_PASSES, NOTICES, NOTICES)
    assert (found.by, found.after) == ("tests/test_2.py::test_it", 1)
    assert kept.sound == {"tests/test_1.py::test_it": False, "tests/test_2.py::test_it": True}


@soak
def test_the_test_that_killed_a_mutant_last_is_tried_first(
    hunt: Callable[..., tuple[Found, Results]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mutants.told", lambda way: {UNSPELLED.breaks: "test_2.py::test_it"})
    found, _ = hunt(PASSES, NEVER_PASSES, NOTICES)
    assert (found.by, found.after) == ("tests/test_2.py::test_it", 0)


def test_the_page_tells_the_test_and_the_seed_that_killed_a_mutant() -> None:
    breaks = "the ring's all-gather adds"
    assert told("sweep")[breaks].startswith("seed ")
    file, _, name = told("tests")[breaks].partition("::")
    assert name.startswith("test_")
    assert [*(ROOT / "tests").rglob(file)]


def test_a_mutant_is_swept_with_the_conversation_of_its_file() -> None:
    swept = {one.edits[0].file: one.conversation for one in mutants()}
    assert swept["protocols/swim/suspicion.py"] == "gossip"
    assert swept["aggregation/consistency.py"] == "parameter_server"
    assert swept["protocols/link/lane.py"] == "allreduce"
    of_all = next(one for one in mutants() if one.edits[0].file == "protocols/stalls/stalls.py")
    assert of_all.conversation == "parameter_server", "it alone uses the edited line"


@soak
def test_a_test_that_fails_without_the_mutant_does_not_kill_it(hunt: Callable[..., tuple[Found, Results]]) -> None:
    found, kept = hunt(NEVER_PASSES, PASSES)
    assert (found.by, found.after, found.whole) == ("", 1, True)
    assert kept.sound == {"tests/test_0.py::test_it": False}


def test_a_seed_that_breaks_a_promise_without_a_mutant_too_does_not_kill_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(
        tree: Tree, mutant: Mutant, seeds: Sequence[str], limit_s: float, others: str = ""
    ) -> tuple[str, int, bool]:
        planted = 'replace("-", "_")' not in (tree.root / "aggregation/options.py").read_text()
        bad = next((seed for seed in seeds if seed == "3" or (seed == "7" and planted)), None)
        return ("", len(seeds), True) if bad is None else (f"seed {bad}: all agree", seeds.index(bad), False)

    monkeypatch.setattr("mutant_results.BUILD", tmp_path / "build")
    monkeypatch.setattr(Hunt, "_swept", staticmethod(swept))
    monkeypatch.setattr("mutants.told", lambda way: {})
    results = Results("sweep")
    found = Hunt(results, limit_s=200).by_sweep(Tree(tmp_path), UNSPELLED)
    assert (found.by, found.after) == ("seed 7: all agree", 6)
    assert results.sound == {"seed 3 of allreduce": False, "seed 7 of allreduce": True}


MARKED = """
def ends(of):
    if of > 3:
        found = min(
            of, 4)
    elif of < 0 and of != -3:
        found = 0
    else:
        found = of
    return found
"""


@pytest.mark.parametrize(("old", "reaching"), [("of, 4)", [5]), ("of != -3", [-1, 2]), ("found = of", [2])])
def test_a_seed_runs_with_a_mutant_only_if_it_executes_the_statement_that_the_mutant_edits(
    old: str, reaching: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutant = Mutant("an end is another one", (Edit("ends.py", old, "pass"),))
    monkeypatch.setattr("mutant_runs.REACHED", reached := set[str]())
    space: dict[str, Callable[[int], int]] = {}
    exec(with_marks(MARKED, "ends.py", [mutant]), space)
    seen = []
    for of in (5, -1, 2):
        reached.clear()
        assert space["ends"](of) == {5: 4, -1: 0, 2: 2}[of]
        seen += [of] if reached else []
    assert seen == reaching


def test_the_seeds_that_do_not_reach_a_mutant_are_not_run_with_it_and_their_places_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mutant_results.BUILD", tmp_path)
    mutant = mutants()[0]
    seeds = {str(seed): [[mutant.breaks] if seed == 3 else [], {"a place": 2}] for seed in range(SEEDS)}
    plain = {"tree": fingerprint_of_runs(), "seeds": seeds}
    (tmp_path / "reach-allreduce.json").write_text(json.dumps(plain))
    assert Reach("allreduce").of(mutant) == (["3"], Counter({"a place": 2 * (SEEDS - 1)}))
    del seeds["7"]
    (tmp_path / "reach-allreduce.json").write_text(json.dumps(plain))
    assert Reach("allreduce").of(mutant)[0] == ["3", "7"], "of a seed that was not tried nothing is known"
