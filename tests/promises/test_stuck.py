"""A run of a test that does not end tells where it waits."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from nursery import Forked
from stuck import ended_within

WAITS = """
import asyncio

async def waits_in_vain():
    # Said by the event loop, once this task waits: a task that runs waits for nothing yet.
    asyncio.get_running_loop().call_soon(lambda: print("ready", flush=True))
    await asyncio.Event().wait()

asyncio.run(waits_in_vain())
"""


def test_a_process_that_does_not_end_says_where_it_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (tmp_path / "peer.log").open("w") as log:
        how = {"cwd": tmp_path, "env": {**os.environ}, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE}
        process = Forked([sys.executable, "-c", WAITS], stderr=log, text=True, **how)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        with ended_within(0.0, tmp_path, lambda: [psutil.Process(process.pid)]):
            process.wait()
    told = capsys.readouterr().out
    assert "waits_in_vain" in told
    assert "waits for <" in told


def test_a_process_that_ends_in_time_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with ended_within(1000.0, tmp_path, lambda: pytest.fail("it is asked")):
        pass
    assert not capsys.readouterr().out
