"""Run every benchmark, one after the other, and tell how each ended and what it took: `make bench`, `make soak`.

    python benchmarks/_all.py [--quick]

Each runs in build/benchmarks, where those that draw leave their figures. One that fails keeps none of the others from
running. One that cannot measure anything here says why, and is skipped. The exit code is 1 when any has failed or has
missed a goal; that is to be expected of goals for times where the machine is busy with something else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from common import MISSED, SKIPPED

HERE = Path(__file__).resolve().parent


def scripts(root: Path = HERE) -> list[Path]:
    """Every benchmark: what is no helper of another, which has no main part or a name that begins with "_"."""
    files = sorted(root.glob("[!_]*.py")) + sorted(root.glob("papers/[!_]*.py"))
    return [file for file in files if '\nif __name__ == "__main__":\n' in file.read_text(encoding="utf-8")]


def run_all(files: Iterable[Path], options: Sequence[str], folder: Path) -> int:
    """The exit code."""
    folder.mkdir(parents=True, exist_ok=True)
    told, good = list[str](), True
    for file in files:
        name = f"{file.parent.name}/{file.name}"
        print(f"\n{name} {' '.join(options)}", flush=True)
        began = time.monotonic()
        code = subprocess.run([sys.executable, file, *options], cwd=folder).returncode
        how = {0: "passed", MISSED: "MISSED", SKIPPED: "skipped"}.get(code, "FAILED")
        told.append(f"{name:<30} {how:<8} exit code {code:>3} {time.monotonic() - began:>7.1f} s")
        print(told[-1], flush=True)
        good = good and code in (0, SKIPPED)
    print("", *told, sep="\n")
    return 0 if good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="the headline rows of each only, within a minute or so")
    options = parser.parse_args()
    return run_all(scripts(), ["--quick"] if options.quick else [], HERE.parent / "build" / "benchmarks")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
