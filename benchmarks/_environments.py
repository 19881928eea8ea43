"""Rivals in environments of their own, each made on first use: what they want of other packages is not what we want."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Environment:
    """`name`: of the rival, and of the folder; `requirements`: of pip; `module`: to be imported then."""

    name: str
    requirements: tuple[str, ...]
    module: str

    @property
    def folder(self) -> Path:
        return ROOT / "build" / f"{self.name}-venv"

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def install(self) -> str:
        """Returns why the rival cannot be had here; nothing where it can."""
        constraints = ROOT / "constraints.txt"
        lines = constraints.read_text(encoding="utf-8").splitlines()
        torch = next(line for line in lines if line.startswith("torch=="))
        ready, wanted = self.folder / "ready", f"{' '.join(self.requirements)} {torch} {sys.version}"
        if ready.exists() and ready.read_text(encoding="utf-8") == wanted:
            return ""
        print(f"Setting up {self.name} in {self.folder}: a few minutes, the first time", file=sys.stderr)
        shutil.rmtree(self.folder, ignore_errors=True)
        pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint", constraints]
        for command in (
            [sys.executable, "-m", "venv", self.folder],
            [self.python, *pip, *self.requirements, torch],
            [self.python, "-c", f"import {self.module}"],
        ):
            done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
            if done.returncode:
                return (done.stderr or done.stdout).strip().rsplit("\n", 1)[-1]
        ready.write_text(wanted, encoding="utf-8")
        return ""


HIVEMIND = Environment("hivemind", ("hivemind==1.1.12",), "hivemind")
DECENT_DP = Environment("decent-dp", ("decent-dp==0.2.3", "numpy"), "decent_dp.ddp")
"""PyTorch needs NumPy to broadcast objects, as Decent-DP does, and does not ask for it."""
