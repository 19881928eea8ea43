"""Sandblaster L-BFGS (Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.2).

    python benchmarks/papers/sandblaster.py [--quick] [--json FILE] [--figure FILE]

All of it is in virtual time; workers, servers, the coordinator and the network between them are the library's. The
problem is logistic regression in float64, with a small ridge.

    a  the loss by evaluations of it: 1 and 4 workers, and scipy's L-BFGS; with 4 workers portions are mapped twice
    b  the time of a step with 16 workers of which one is 10 times slower, over the ideal time, in which all work until
       the end: a static split of the data, and 10 portions a worker with backup tasks
    c  the same with log-normal speeds (0.5)
"""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _common import Claim, Curve, Found, Row, arguments, chart, conclude, studied
from scipy.optimize import minimize
from torch import Tensor, nn

from samovar.aggregation.lbfgs import Search, decide
from samovar.aggregation.server.lbfgs import KeepBasis, gram, obeyed
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.protocols.parameter_server.mapper import Mapper
from samovar.sims.scenarios.scenario import Group, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

ROWS, FEATURES, RIDGE = 1920, 20, 1e-3
"""As many rows as give portions of equal size."""
PORTION_S, PORTIONS, WORKERS, SLOW = 1.0, 10, 16, 10.0
CURVES: dict[str, Curve] = {}


@lru_cache(maxsize=1)
def table() -> tuple[Tensor, Tensor]:
    """The rows x [m, n], of which some features vary 30 times as much as others, and their classes y [m]."""
    chance = torch.Generator().manual_seed(0)
    scales = torch.logspace(-1, 0.5, FEATURES, dtype=torch.float64)
    x = torch.randn(ROWS, FEATURES, generator=chance, dtype=torch.float64) * scales
    return x, (x.sum(1) + torch.randn(ROWS, generator=chance, dtype=torch.float64) > 0).double()


def judged(theta: Tensor) -> tuple[float, Tensor]:
    """The mean loss at theta [n], and its gradient [n]."""
    x, y = table()
    z = x @ theta
    loss = nn.functional.binary_cross_entropy_with_logits(z, y) + RIDGE / 2 * theta @ theta
    return float(loss), x.T @ (torch.sigmoid(z) - y) / ROWS + RIDGE * theta


def task() -> Task:
    x, y = table()

    def model() -> nn.Module:
        made = nn.Linear(FEATURES, 1, bias=False).double()
        nn.init.zeros_(made.weight)
        return made

    def data(part: int, parts: int) -> list[tuple[Tensor, Tensor]]:
        return [(x[part::parts], y[part::parts])]

    def loss(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Tensor:
        penalty = RIDGE / 2 * next(model.parameters()).square().sum()
        return nn.functional.binary_cross_entropy_with_logits(model(rows[0])[:, 0], rows[1]) + penalty

    def query(rows: tuple[Tensor, Tensor], model: nn.Module) -> Tensor:
        return rows[0].T @ (torch.sigmoid(model(rows[0])[:, 0]) - rows[1]) / ROWS

    return Task(Path("logistic"), model, data, loss, query=query)


def played(algorithm: str, map_s: Sequence[float], steps: int) -> tuple[Tensor, list[ExchangeRecord]]:
    """The model with which the workers end, and the records of the first. `map_s`: for each worker, the virtual seconds
    of the map of one partition."""
    settings = Settings(
        protocol="parameter-server", servers=2, peers=len(map_s), steps=steps, device="cpu", algorithm=algorithm,
        compute_patience_s=1e4,
    )  # fmt: skip
    plain, records = Scenario.plain(settings), list[Record]()
    workers = [Group(peers=1, link=plain.groups[0].link, step_s=seconds) for seconds in map_s]
    world = World(task(), replace(plain, groups=(*workers, plain.groups[-1])), records.append)
    run_virtual(world.run(within_s=1e6), seed=0)
    models = [life.peer.conversation.position().vector for life in world.lives
              if isinstance(life.peer.conversation, Mapper)]  # fmt: skip
    assert all(torch.equal(model, models[0]) for model in models)
    return models[0], [one for one in records if isinstance(one, ExchangeRecord) and one.peer == "0"]


def alone(steps: int) -> tuple[Tensor, Curve]:
    """The point of a single machine after so many steps, and the loss at each trial."""
    function, search = KeepBasis(), Search()
    values, curve = torch.zeros(FEATURES, dtype=torch.float64), list[tuple[float, float]]()
    state = function.start(values)
    for step in range(1, steps + 1):
        loss, gradient = judged(values)
        curve.append((float(step), loss))
        values, state = function.step(values, ROWS * gradient, state)
        order = decide(gram(state), ROWS * loss, search, last=step == steps)
        (values, state), search = obeyed(values, state, order), order.search
    return values, curve


def descent(quick: bool) -> Found:
    steps, seen = 15 if quick else 60, list[tuple[float, float]]()

    def of(theta: np.ndarray[Any, Any]) -> tuple[float, np.ndarray[Any, Any]]:
        loss, gradient = judged(torch.from_numpy(theta))
        seen.append((len(seen) + 1.0, loss))
        return loss, gradient.numpy()

    found = minimize(of, np.zeros(FEATURES), jac=True, method="L-BFGS-B", options={"ftol": 1e-14})
    due, curve = alone(steps)
    CURVES["scipy"], CURVES["one machine"] = seen, curve
    rows = [{"work": "a: loss", "system": name, "loss": CURVES[name][-1][1]} for name in ("scipy", "one machine")]
    apart = worst = 0.0
    for workers in (1, 4):
        model, records = played(f"sandblaster:{PORTIONS}", [0.1] * workers, steps)
        name = f"{workers} worker{'s' * (workers > 1)}"
        CURVES[name] = [(float(one.step), one.loss) for one in records]
        loss, apart = judged(model)[0], max(apart, float((model - due).abs().max()))
        worst = max(worst, loss - found.fun)
        rows.append({"work": "a: loss", "system": name, "loss": loss})
    goal = "1 and 4 workers within 1e-8 of one machine after as many evaluations"
    return rows, [
        Claim("(not told) L-BFGS by dot products", "the loss of scipy's L-BFGS within 1e-4", f"{worst:.1e} above it",
              None if quick else worst <= 1e-4),
        Claim("duplicated portions change nothing", goal, f"{apart:.1e}", apart <= 1e-8),
    ]  # fmt: skip


def stragglers(quick: bool) -> Found:
    steps, chance, rows, claims = 3 if quick else 8, random.Random(0), list[Row](), list[Claim]()
    works = {
        "b: one of 16 workers 10 times slower": [1.0] * (WORKERS - 1) + [SLOW],
        "c: log-normal speeds": [chance.lognormvariate(0.0, 0.5) for _ in range(WORKERS)],
    }
    for work, slowness in works.items():
        ideal = WORKERS * PORTIONS * PORTION_S / sum(1 / one for one in slowness)
        systems = {
            "static split": ("statistical_query:descent", PORTIONS * PORTION_S),
            "tiny portions with backups": (f"sandblaster:{PORTIONS}", PORTION_S),
        }
        for system, (algorithm, map_s) in systems.items():
            _, records = played(algorithm, [map_s * one for one in slowness], steps)
            step_s = (records[-1].time_s - records[0].time_s) / (len(records) - 1)
            rows.append({"work": work, "system": system, "over_ideal": step_s / ideal})
        static, tiny = (row["over_ideal"] for row in rows[-2:])
        ours = f"{tiny:.2f} times the ideal time, a static split {static:.2f}"
        goal = f"{work[3:]}: at most 1.2 times the ideal time"
        claims.append(Claim("small portions and backup tasks hide slow machines", goal, ours, tiny <= 1.2))
    return rows, claims


def main() -> int:
    torch.set_num_threads(1)
    options = arguments(__doc__, "sandblaster")
    rows, claims = studied((descent, stragglers), quick=options.quick)
    figure = chart("Logistic regression by L-BFGS", "evaluations of the loss", "loss", CURVES)
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
