"""HOGWILD! (Niu, Recht, Re & Wright, NIPS 2011, arXiv 1106.5730): SGD on shared parameters without locks.

    python benchmarks/papers/hogwild.py [--quick] [--json FILE] [--figure FILE]

Real time on this machine: sparse logistic regression, 100,000 parameters of which a row touches 20. Processes share the
parameters x in memory. Each takes a row e of its own at random, reads x_e, and writes

    x_v <- x_v - gamma * g_v   for each v in e,   g = (sigmoid(a_e . x_e) - y_e) a_e

gamma is multiplied by 0.9 in each epoch. `lock-free`: nothing else. `locked`: one lock is held from the read to the
write. `one process`: the same without others. All take as many updates in sum. The control is dense: 20 parameters, so
that each update meets all others.
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from multiprocessing.shared_memory import SharedMemory
from statistics import median
from typing import Any

import numpy as np
from _common import Claim, Curve, Found, Row, arguments, chart, conclude, studied
from numpy.typing import NDArray

TOUCHED, GAMMA, SHRINKS, PROCESSES = 20, 1.0, 0.9, 2
ARMS = ("one process", "lock-free", "locked")
CURVES: dict[str, Curve] = {}
Vector = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Rows:
    """`ids`, `values` [m, 20]: the parameters that each row touches, and its features there; `classes` [m]: 0 or 1."""

    size: int
    ids: Vector
    values: Vector
    classes: Vector

    def loss(self, x: Vector) -> float:
        """The mean log loss at x [size]."""
        z = (self.values * x[self.ids]).sum(1)
        return float(np.mean(np.logaddexp(0.0, z) - self.classes * z))


@lru_cache(maxsize=2)
def drawn(size: int, count: int) -> Rows:
    chance = np.random.default_rng(0)
    ids = np.stack([chance.choice(size, TOUCHED, replace=False) for _ in range(count)])
    values = chance.standard_normal((count, TOUCHED)) / TOUCHED**0.5
    z = (values * (4 * chance.standard_normal(size))[ids]).sum(1)
    return Rows(size, ids, values, (chance.random(count) < 1 / (1 + np.exp(-z))).astype(float))


def descend(rows: Rows, x: Vector, order: Vector, gamma: float, lock: AbstractContextManager[Any]) -> None:
    """One update for each row in `order`, each under `lock`."""
    ids, values, classes = rows.ids, rows.values, rows.classes
    for row in order:
        e, a = ids[row], values[row]
        with lock:
            x[e] -= gamma * (1.0 / (1.0 + np.exp(-(a @ x[e]))) - classes[row]) * a


def _worker(rows: Rows, name: str, place: int, places: int, epochs: int, lock: Any, gate: Any) -> None:
    memory = SharedMemory(name)
    x, chance = np.ndarray(rows.size, buffer=memory.buf), np.random.default_rng(place)
    own = np.arange(place, len(rows.classes), places)
    gate.wait()
    for epoch in range(epochs):
        descend(rows, x, chance.permutation(own), GAMMA * SHRINKS**epoch, lock)
        gate.wait()
    del x
    memory.close()


def run(rows: Rows, arm: str, epochs: int) -> tuple[float, list[tuple[float, float]]]:
    """Updates a second, and the loss after each epoch, (seconds, loss). The time of judging is not counted."""
    known = multiprocessing.get_context("fork")
    places = 1 if arm == "one process" else PROCESSES
    memory, gate = SharedMemory(create=True, size=8 * rows.size), known.Barrier(places + 1)
    x = np.ndarray(rows.size, buffer=memory.buf)
    x[:] = 0.0
    lock: Any = known.Lock() if arm == "locked" else nullcontext()
    workers = [
        known.Process(target=_worker, args=(rows, memory.name, place, places, epochs, lock, gate))
        for place in range(places)
    ]
    for worker in workers:
        worker.start()
    gate.wait()
    began_s, curve = time.monotonic(), list[tuple[float, float]]()
    for _ in range(epochs):
        gate.wait()
        curve.append((time.monotonic() - began_s, rows.loss(x)))
    for worker in workers:
        worker.join()
    del x
    memory.close()
    memory.unlink()
    return epochs * len(rows.classes) / curve[-1][0], curve


def told(rows: Rows, epochs: int, times: int, kind: str) -> list[Row]:
    """For each arm the medians over `times` runs, which take turns."""
    found: dict[str, list[tuple[float, list[tuple[float, float]]]]] = {arm: [] for arm in ARMS}
    for _ in range(times):
        for arm in ARMS:
            found[arm].append(run(rows, arm, epochs))
    for arm, runs in found.items():
        if kind == "sparse":
            CURVES[arm] = runs[0][1]
    return [
        {
            "work": f"{'a' if kind == 'sparse' else 'b'}: {kind}, {arm}",
            "updates/s": median(rate for rate, _ in runs),
            "loss": median(curve[-1][1] for _, curve in runs),
        }
        for arm, runs in found.items()
    ]


def apart(rows: Sequence[Row]) -> float:
    """The greatest relative distance of a loss from that of one process."""
    return float(max(abs(row["loss"] / rows[0]["loss"] - 1.0) for row in rows[1:]))


def hogwild(quick: bool) -> Found:
    epochs, times = (3, 1) if quick else (10, 3)
    sparse = told(drawn(100_000, 4_000 if quick else 20_000), epochs, times, "sparse")
    dense = told(drawn(TOUCHED, 4_000), epochs, 1 if quick else 3, "dense")
    one, free, locked = (row["updates/s"] for row in sparse)
    losses = ", ".join(f"{row['loss']:.4f}" for row in sparse)
    return [*sparse, *dense], [
        Claim(
            "lock-free is an order of magnitude faster than locking schemes",
            f"{PROCESSES} processes: lock-free at least as many updates/s as locked",
            f"{free:,.0f}/s lock-free, {locked:,.0f}/s locked, {one:,.0f}/s one process: {free / one:.2f} and "
            f"{locked / one:.2f} times",
            None if quick else free >= locked,
        ),
        Claim(
            "sparse updates hardly meet, so nothing is lost",
            "the loss of all three equal within 2 %",
            f"{losses}: within {apart(sparse):.2%}",
            None if quick else apart(sparse) <= 0.02,
        ),
        Claim("dense updates meet", "told, no goal", f"dense: losses within {apart(dense):.2%} of one process"),
    ]


def main() -> int:
    options = arguments(__doc__, "hogwild")
    rows, claims = studied([hogwild], quick=options.quick)
    figure = chart("HOGWILD!: sparse logistic regression", "seconds", "loss", CURVES)
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
