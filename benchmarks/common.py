"""What every benchmark here does alike: interleave the systems, take medians, print a table, write rows of JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

Row = dict[str, Any]

MISSED, SKIPPED = 3, 77
"""The exit codes of a benchmark that has missed a goal, and of one that cannot measure anything here, which has said
why. Neither is an error's, 1, nor that of options that do not exist, 2."""


def arguments(description: str | None) -> argparse.Namespace:
    """--quick for the headline rows within a minute, --json FILE for machines."""
    return usual_parser(description).parse_args()


def grid_parser(description: str | None) -> argparse.ArgumentParser:
    """The same for what is measured with several numbers of peers, and sizes."""
    parser = usual_parser(description)
    parser.add_argument("--peers", help="numbers of peers")
    parser.add_argument("--size", help="bytes of the vectors of float32")
    parser.add_argument("--turns", type=int, help="how often all are measured in turn")
    return parser


def with_usual(options: argparse.Namespace, peers: str, size: str, turns: int) -> argparse.Namespace:
    """What was not said is the usual."""
    options.peers, options.size, options.turns = options.peers or peers, options.size or size, options.turns or turns
    return options


def against_options(
    description: str | None, rivals: Collection[str], *, quick: tuple[str, str, int], whole: tuple[str, str, int]
) -> argparse.Namespace:
    """The options of a benchmark beside `rivals`, on this machine or on links of given rates. `quick`, `whole`: the
    usual numbers of peers, sizes and turns, with --quick and without."""
    parser = grid_parser(description)
    parser.add_argument("--against", default="gloo", help="rivals")
    parser.add_argument("--link", default="", help="rates of the links between the peers")
    options = parser.parse_args()
    on_links = ("4", "16MiB", 2) if options.quick else ("4", "64MiB", 3)
    with_usual(options, *(on_links if options.link else quick if options.quick else whole))
    if unknown := {*options.against.split(",")} - {*rivals, ""}:
        parser.error(f"there is no rival {unknown.pop()!r}: there are {', '.join(rivals)}")
    if options.link and "," in options.peers:
        parser.error("--link takes one number of peers")
    return options


def usual_parser(description: str | None) -> argparse.ArgumentParser:
    """For what has options of its own besides."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the headline rows only, within a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows as a JSON list")
    return parser


def interleaved(systems: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each system, measured in turn, so that a machine that drifts drifts for all alike. One warm-up."""
    for run in systems.values():
        run()
    times: dict[str, list[float]] = {name: [] for name in systems}
    for _ in range(repeats):
        for name, run in systems.items():
            times[name].append(run())
    return times


def rows_of(work: str, times: Mapping[str, Sequence[float]], ours: str, rival: str, goal: float | None) -> list[Row]:
    """A row a system; on ours the ratio, the rival's time over our own, taken turn by turn."""
    ratio = statistics.median(r / o for r, o in zip(times[rival], times[ours], strict=True))
    rows = []
    for name, seconds in times.items():
        row: Row = {"work": work, "system": name, "median_s": statistics.median(seconds), "ratio": None, "goal": None}
        if name == ours:
            row |= {"ratio": ratio, "goal": goal}
        rows.append(row)
    return rows


def show(rows: Sequence[Row], target: Path | None) -> None:
    """Print the rows and the machine; write them to `target`."""
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    print(f"{'work':<44} {'system':<18} {'median':>11}  {'ratio':>7}  {'goal':>6}")
    for row in rows:
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f}"
        goal = "" if row["goal"] is None else f"{row['goal']:g}"
        print(f"{row['work']:<44} {row['system']:<18} {1e3 * row['median_s']:>8.2f} ms  {ratio:>7}  {goal:>6}")
    if target is not None:
        target.write_text(json.dumps(list(rows), indent=1) + "\n", encoding="utf-8")


def missed(rows: Sequence[Row]) -> int:
    """The exit code: that a ratio is below its goal, or 0."""
    short = [row for row in rows if row["ratio"] is not None and row["ratio"] < row["goal"]]
    for row in short:
        print(f"below its goal: {row['work']}: {row['ratio']:.2f} < {row['goal']:g}", file=sys.stderr)
    return MISSED if short else 0
