"""The thread of local steps computes with as many kernel threads as its peer is given."""

from __future__ import annotations

import os
import subprocess
import sys

KERNELS = """
import asyncio, os, torch
from samovar.peers.training.compute import ThreadCompute

async def main():
    torch.set_num_threads(1)
    compute = ThreadCompute()
    before = await compute.run(lambda: len(os.listdir("/proc/self/task")))
    await compute.run(lambda: [torch.rand(count).sqrt() for count in (16, 256, 512, 1024, 2048, 100_000)])
    print(len(os.listdir("/proc/self/task")) - before)
    compute.close()

asyncio.run(main())
"""


def test_small_kernels_of_local_steps_start_no_threads_of_their_own() -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "4"}
    told = subprocess.run([sys.executable, "-c", KERNELS], env=environment, capture_output=True, text=True, check=True)
    assert told.stdout == "0\n"
