"""The hostile process `attacker`, as whoever starts it sees it; and what its attacks do to the memory of others."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
from nursery import Forked

MIB = 1 << 20


class Villain:
    """Ready to attack the run whose join lines are in `join_txt`; as a member if it is given a folder for that."""

    def __init__(self, join_txt: Path, task: Path, member: Path | None = None) -> None:
        as_member = () if member is None else ("--member", str(member))
        words = [sys.executable, str(Path(__file__).with_name("attacker.py")), str(join_txt), str(task), *as_member]
        self.process = Forked(
            words, cwd=Path.cwd(), env={**os.environ}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __enter__(self) -> Villain:
        assert self._hear() == {"ready": True}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """It leaves when nobody speaks to it any more."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30.0)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def attack(self, name: str, *, turns: int | None = None, for_s: float | None = None) -> dict[str, Any]:
        """Returns when it is over: `keys` that were used, `cpu_s` that it took."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"attack": name, "turns": turns, "for_s": for_s}) + "\n")
        self.process.stdin.flush()
        return self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the hostile process has ended"
        heard: dict[str, Any] = json.loads(line)
        return heard


class Grown:
    """By how many MiB the resident memory of each process grows, at most, while this is entered."""

    def __init__(self, processes: Iterable[psutil.Process]) -> None:
        self._processes = list(processes)
        self._before = [self._resident(process) for process in self._processes]
        self._most, self._over = [*self._before], threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    @staticmethod
    def _resident(process: psutil.Process) -> int:
        return int(process.memory_info().rss)

    @property
    def mib(self) -> float:
        return max(most - before for most, before in zip(self._most, self._before, strict=True)) / MIB

    def _watch(self) -> None:
        while not self._over.wait(0.05):
            self._look()

    def _look(self) -> None:
        for number, process in enumerate(self._processes):
            self._most[number] = max(self._most[number], self._resident(process))

    def __enter__(self) -> Grown:
        self._watching.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._over.set()
        self._watching.join()
        self._look()
