"""Commands of the README and of pages, as a reader types them, and in a form that is over in a moment."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from live import ROOT

STEPS, SIMULATED_STEPS = 40, 16
"""Of a quick run."""


def words(command: str, quick: bool) -> list[str]:
    """Of a quick command, as it is but for its number of local steps."""
    typed = shlex.split(command, comments=True)
    if not quick or not {"train", "simulate"} & {*typed[:2]} or "--sweep" in typed or "--help" in typed:
        return typed
    if any(word.endswith(".py") and "def model(" not in (ROOT / word).read_text() for word in typed):
        return typed  # a script has steps of its own, see `examples`
    steps = SIMULATED_STEPS if typed[1] == "simulate" else 2 * STEPS if "--resume" in typed else STEPS
    return [*typed, "--steps", str(steps)]


def examples(home: Path, quick: bool) -> None:
    """Copy the examples there. Quick scripts take fewer steps."""
    shutil.copytree(ROOT / "examples", home / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    for file in (home / "examples").glob("*.py") if quick else ():
        text = file.read_text("utf-8")
        file.write_text(re.sub(r"^(STEPS, .* = )\d+,", rf"\g<1>{4 * STEPS},", text, flags=re.MULTILINE), "utf-8")
