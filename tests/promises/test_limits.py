"""A process that its machine allows too little: one line says what is short and how to raise it, exit 2."""

from __future__ import annotations

import errno
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from live import STEADY
from tiers import soaked

from samovar.peers.errors import one_line
from samovar.peers.machine.open_files import require_files

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the limits are Linux's")


def ended_under(folder: Path, limit: int, most: int, *arguments: object) -> tuple[int, str]:
    """The exit code and stderr of ``samovar ARGUMENTS`` under a limit of setrlimit(2)."""
    done = subprocess.run(
        [sys.executable, "-m", "samovar", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=90,
        preexec_fn=lambda: resource.setrlimit(limit, (most, most)),
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("most", [16, soaked(24)])
def test_a_peer_out_of_descriptors_names_the_limit_and_ulimit(most: int, tmp_path: Path) -> None:
    code, told = ended_under(tmp_path, resource.RLIMIT_NOFILE, most, "train", STEADY, "--peers", 2, "--steps", 20)
    assert code == 2
    assert re.fullmatch(
        r"samovar: peer \d: a peer needs 20 free file descriptors: "
        rf"at most {most} files can be open in this process; raise the limit \(ulimit -n 1024\)\n",
        told.splitlines(keepends=True)[-1],
    ), told
    assert "Traceback" not in told


def test_descriptors_that_run_out_later_name_the_limit_too() -> None:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 30, usual[1]))
    try:
        require_files()
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        told = one_line(OSError(errno.EMFILE, "Too many open files", "data.csv"))
        assert told.endswith(f"at most {limit} files can be open in this process; raise the limit (ulimit -n 1024)")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    assert "ulimit" not in one_line(FileNotFoundError(errno.ENOENT, "No such file or directory", "data.csv"))


def test_too_little_memory_to_import_pytorch_is_one_line(tmp_path: Path) -> None:
    # So little that PyTorch cannot be mapped at all: with more, its own start may end the process by a signal.
    code, told = ended_under(tmp_path, resource.RLIMIT_AS, 300_000 * 1024, "train", STEADY)
    assert code == 2
    assert told.startswith("samovar: ")
    assert re.search(r"cannot be imported: .*307 MB of addresses \(ulimit -v\)", told)
    assert told.count("\n") == 1
