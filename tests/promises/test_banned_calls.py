"""What the library never calls: each rule is kept by a test, and by one with a planted fault."""

import ast

import pytest
from library import ALLOWED, assert_found, faults_of, names, nodes, within

# What mathematics on vectors needs: nothing that waits, reads, writes or looks at a clock.
PURE = set(
    "__future__ abc bisect cmath collections copy dataclasses enum fractions functools hashlib heapq itertools "
    "json math numbers operator random statistics struct torch types typing".split()
)
IMPURE = ("torch.distributed", "torch.futures", "torch.hub", "torch.multiprocessing", "torch.save")
BANNED = {
    "time.time": "another peer's clock may be an hour off: ask the endpoint, or use time.monotonic",
    "time.time_ns": "another peer's clock may be an hour off: ask the endpoint, or use time.monotonic_ns",
    "pickle": "unpickling runs whatever the sender likes",
    "cloudpickle": "unpickling runs whatever the sender likes",
    "torch.load": "it unpickles: use safetensors",
    "torch.serialization": "it unpickles: use safetensors",
}


def purity_faults(path: str, source: str) -> list[str]:
    if not path.startswith("aggregation/"):
        return []
    faults = []
    for name, line in names(path, source):
        impure = any(within(name, module) for module in IMPURE)
        if impure or name.split(".")[0] not in {*PURE, "samovar"}:
            faults.append(f"{path}:{line}: {name}: aggregation is mathematics only")
    for node in nodes(source):
        waits = isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if waits or called in {"open", "print", "input"}:
            faults.append(f"{path}:{node.lineno}: {called or 'async'}: aggregation neither waits nor reads nor writes")
    return faults


def banned_faults(path: str, source: str) -> list[str]:
    faults = []
    for name, line in names(path, source):
        if path == "peers/task/rng.py" and within(name, "random"):
            continue  # it hands the global one from peer to peer
        puts_another_clock_in_its_place = (path, name) == ("sims/world/wall_clock.py", "time.time")
        if not puts_another_clock_in_its_place:
            faults += [f"{path}:{line}: {name}: {why}" for banned, why in BANNED.items() if within(name, banned)]
        if name.startswith("random.") and not within(name, "random.Random"):
            faults.append(f"{path}:{line}: {name}: draw from a seeded random.Random, not from the global one")
    return faults


def test_aggregation_is_mathematics_only() -> None:
    assert not faults_of(purity_faults)


def test_the_library_never_unpickles_reads_the_wall_clock_or_draws_unseeded() -> None:
    assert not faults_of(banned_faults)


MATHS = "aggregation is mathematics only"
STILL = "neither waits nor reads nor writes"


@pytest.mark.parametrize(
    ("check", "path", "source", "said"),
    [
        (purity_faults, "aggregation/mean.py", "import asyncio", MATHS),
        (purity_faults, "aggregation/mean.py", "from time import monotonic", MATHS),
        (purity_faults, "aggregation/mean.py", "from pathlib import Path", MATHS),
        (purity_faults, "aggregation/mean.py", "import numpy as np", MATHS),
        (purity_faults, "aggregation/mean.py", "from torch import distributed", MATHS),
        (purity_faults, "aggregation/mean.py", "import torch\ntorch.distributed.barrier()", MATHS),
        (purity_faults, "aggregation/mean.py", "async def f(): ...", STILL),
        (purity_faults, "aggregation/mean.py", "open('x')", STILL),
        (banned_faults, "sims/world.py", "import time\nnow = time.time()", "time.monotonic"),
        (banned_faults, "sims/world.py", "import time as t\nnow = t.time", "time.monotonic"),
        (banned_faults, "sims/world.py", "from time import time as now", "time.monotonic"),
        (banned_faults, "sims/world.py", "import random\nrandom.shuffle([])", "seeded"),
        (banned_faults, "sims/world.py", "import random\nrandom.SystemRandom()", "seeded"),
        (banned_faults, "sims/world.py", "from random import choice", "seeded"),
        (banned_faults, "sims/world.py", "import pickle", "unpickling"),
        (banned_faults, "sims/world.py", "from pickle import loads", "unpickling"),
        (banned_faults, "sims/world.py", "import torch\ntorch.load('x')", "safetensors"),
        (banned_faults, "sims/world.py", "import torch.nn\ntorch.load('x')", "safetensors"),
        (banned_faults, "sims/world.py", "from torch import load", "safetensors"),
    ],
)
def test_a_planted_fault_is_found(check, path: str, source: str, said: str) -> None:
    assert_found(check, path, source, said)


@pytest.mark.parametrize(("path", "source"), ALLOWED)
def test_allowed_code_passes_the_rules(path: str, source: str) -> None:
    for check in (purity_faults, banned_faults):
        assert check(path, source) == []
