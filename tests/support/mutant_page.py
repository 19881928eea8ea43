"""`docs/mutants.md`: written from the results, and read for what killed each mutant the last time."""

from __future__ import annotations

import re
from collections.abc import Mapping

from mutant_list import ROOT, SEEDS, SWEPT, Mutant, mutants
from mutant_results import Found, Results

PAGE = ROOT / "docs" / "mutants.md"


def score() -> list[str]:
    """A line for each way."""
    lines = []
    for way, name, asked in (
        ("tests", "`make test`", mutants()),
        ("sweep", f"`samovar simulate --sweep {SEEDS}`", [one for one in mutants() if one.layer in SWEPT]),
    ):
        found = [known for one in asked if (known := Results(way).found.get(one.breaks)) is not None]
        killed, took_s = sum(bool(one.by) for one in found), sum(one.took_s for one in found)
        open_ = len(asked) - sum(bool(one.by) or one.whole for one in found)
        rest = f"{open_} not tried to the end" if open_ else f"{100 * killed / len(asked):.0f} %"
        lines.append(f"{name}: {killed} of {len(asked)} killed, {rest}; {took_s / 60:.0f} minutes of one worker")
    return lines


def table() -> str:
    """The page."""
    tests, sweep = Results("tests").found, Results("sweep").found

    def cell(column: Mapping[str, Found], mutant: Mutant) -> str:
        found = column.get(mutant.breaks)
        if found is None:
            return ""
        if not found.by:
            return f"survives {found.after:,}{'' if found.whole else ' so far'}"
        return _escaped(found.by) if column is sweep else f"`{_escaped(found.by.split('/')[-1])}`"

    rows = [f"| {one.breaks} | `{one.edits[0].file}` | {cell(tests, one)} | {cell(sweep, one)} |" for one in mutants()]
    living = [f"- *{one.breaks}*: {one.survives}" for one in mutants() if one.survives]
    last = max((found.on for found in (*tests.values(), *sweep.values())), default="never")
    return "\n".join(
        [
            *HEAD,
            "",
            *(f"- {line}" for line in score()),
            "",
            f"Last result: {last}. Commands: `make mutants`, `make mutants OPTIONS=--sweep`.",
            "",
            *(["Why some survive the tests or the sweep:", "", *living, ""] if living else []),
            "| what it breaks | file | test that kills it | seed that kills it |",
            "|---|---|---|---|",
            *rows,
            "",
        ]
    )


HEAD = """\
# Mutants: how much the tests notice

`tests/support/mutants.toml` is a list of bugs, one line each. `make mutants` applies each to a copy of the tree and
runs the tests there until one fails: first the test that this page names, then those nearest to the mutated file.
`make mutants OPTIONS=--sweep` runs the seeds of `samovar simulate --sweep 300 --protocol NAME` instead. NAME is
`gossip` or `parameter_server` for a file, or a line, that only this conversation uses, and `allreduce` otherwise. A
seed whose run without mutants never executes an edited statement has the same run with the mutant, so it is not run
again. This page is written by `make mutants OPTIONS=--table`.
""".splitlines()


def told(way: str) -> dict[str, str]:
    """By mutant, the test (`file::name`) or the seed that killed it the last time, as the page tells."""
    rows = (re.split(r"(?<!\\)\|", line)[1:-1] for line in PAGE.read_text("utf-8").splitlines() if line[:2] == "| ")
    cells = ([cell.strip().strip("`").replace("\\|", "|") for cell in row] for row in rows)
    return {breaks: by_test if way == "tests" else by_seed for breaks, _, by_test, by_seed in cells}


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
