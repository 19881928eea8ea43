"""Commands of the README and of pages, as a reader types them, and in a form that is over in a moment."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from live import ROOT

STEPS, STEPS_ON_LINKS, PEERS_SIMULATED = 40, 16, 16
"""Of a quick run, and of one on simulated or shaped links. A simulated one has no more peers than that, and a sweep is
of one seed."""


def words(command: str, quick: bool) -> list[str]:
    """Of a quick command, as it is but for its number of local steps, simulated peers and seeds."""
    typed = shlex.split(command, comments=True)
    if not quick or not {"train", "simulate"} & {*typed[:2]} or "--help" in typed:
        return typed
    if "--sweep" in typed:
        typed[typed.index("--sweep") + 1] = "1"
        return typed
    if typed[1] == "simulate" and "--peers" in typed:
        place = typed.index("--peers") + 1
        typed[place] = str(min(int(typed[place]), PEERS_SIMULATED))
    if any(word.endswith(".py") and "def model(" not in (ROOT / word).read_text() for word in typed):
        return typed  # a script has steps of its own, see `examples`
    if {"simulate", "--link", "--config"} & {*typed}:
        return [*typed, "--steps", str(STEPS_ON_LINKS)]
    steps = 2 * STEPS if "--resume" in typed else STEPS
    return [*typed, "--steps", str(steps)]


def examples(home: Path, quick: bool) -> None:
    """Copy the examples there. Quick scripts take fewer steps."""
    shutil.copytree(ROOT / "examples", home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (home / "examples").glob("*.py") if quick else ():
        text = file.read_text("utf-8")
        file.write_text(re.sub(r"^(STEPS, .* = )\d+,", rf"\g<1>{4 * STEPS},", text, flags=re.MULTILINE), "utf-8")
