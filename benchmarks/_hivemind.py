"""Hivemind in an environment of its own, made on first use: what it wants of other packages is not what we want."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "hivemind-venv"
PYTHON = FOLDER / "bin" / "python"
VERSION = "hivemind==1.1.12"


def install() -> str:
    """Returns why Hivemind cannot be had here; nothing where it can."""
    constraints = ROOT / "constraints.txt"
    torch = next(line for line in constraints.read_text(encoding="utf-8").splitlines() if line.startswith("torch=="))
    ready, wanted = FOLDER / "ready", f"{VERSION} {torch} {sys.version}"
    if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
        return ""
    print(f"Setting up Hivemind in {FOLDER}: a few minutes, the first time", file=sys.stderr)
    shutil.rmtree(FOLDER, ignore_errors=True)
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraints]
    for command in (
        [sys.executable, "-m", "venv", FOLDER],
        [PYTHON, *pip, VERSION, torch],
        [PYTHON, "-c", "import hivemind"],
    ):
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
        if done.returncode:
            return (done.stderr or done.stdout).strip().rsplit("\n", 1)[-1]
    ready.write_text(wanted, encoding="utf-8")
    return ""
