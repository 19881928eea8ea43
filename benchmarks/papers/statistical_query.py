"""Statistical queries by map and reduce (Chu et al., "Map-reduce for machine learning on multicore", NIPS 2006).

    python benchmarks/papers/statistical_query.py [--quick] [--json FILE] [--figure FILE]

All of it is in virtual time; workers, servers and the network between them are the library's.

    a  the curve of the loss in logistic regression by gradient descent, for 1, 2 and 8 workers
    b  normal equations in float64 beside numpy's least squares, with and without the loss of a worker or server
    c  the steps of descent on 8 workers beside those of one machine; with a lost worker beside without
    d  the payload that a worker sends for the normal equations, over n (n + 1) / 2 + n doubles
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from _common import Claim, Curve, Found, Row, arguments, chart, conclude, studied
from torch import Tensor, nn

from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import Task
from samovar.protocols.parameter_server.mapper import Mapper
from samovar.sims.scenarios.scenario import Fault, Kind, Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.world import World

STEP_S, RATE = 0.5, 2.0
CURVES: dict[str, Curve] = {}


@dataclass(frozen=True, slots=True)
class Problem:
    """A linear problem: `rows` x [m, n] and y [m], drawn from `seed`; targets of 0 and 1 if `logistic`."""

    rows: int
    n: int
    logistic: bool
    seed: int = 0

    def table(self) -> tuple[Tensor, Tensor]:
        chance = torch.Generator().manual_seed(self.seed)
        x = torch.randn(self.rows, self.n, generator=chance, dtype=torch.float64)
        y = x.sum(1) / self.n**0.5 + torch.randn(self.rows, generator=chance, dtype=torch.float64)
        return x, (y > 0).double() if self.logistic else y

    def task(self) -> Task:
        x, y = self.table()

        def data(part: int, parts: int) -> list[tuple[Tensor, Tensor]]:
            return [(x[part::parts], y[part::parts])]

        def sums(rows: tuple[Tensor, Tensor]) -> tuple[Tensor, ...]:
            return rows[0].T @ rows[0], rows[0].T @ rows[1]

        def gradient(rows: tuple[Tensor, Tensor], model: nn.Module) -> Tensor:
            return rows[0].T @ (torch.sigmoid(model(rows[0])[:, 0]) - rows[1]) / self.rows

        def loss(model: nn.Module, rows: tuple[Tensor, Tensor]) -> Tensor:
            judged = nn.functional.binary_cross_entropy_with_logits if self.logistic else nn.functional.mse_loss
            return judged(model(rows[0])[:, 0], rows[1])

        def model() -> nn.Module:
            made = nn.Linear(self.n, 1, bias=False).double()
            nn.init.zeros_(made.weight)
            return made

        return Task(Path("linear"), model, data, loss, query=gradient if self.logistic else sums)

    def descended(self, steps: int) -> Tensor:
        """The model after `steps` of gradient descent on one machine."""
        x, y = self.table()
        theta = torch.zeros(self.n, dtype=torch.float64)
        for _ in range(steps):
            theta = theta - RATE * x.T @ (torch.sigmoid(x @ theta) - y) / self.rows
        return theta


def played(
    problem: Problem, workers: int, steps: int, fault: Fault | None = None
) -> tuple[Tensor, list[ExchangeRecord]]:
    """The model with which the workers end, and the records of all exchanges."""
    kind, update = ("descent", f"sgd:{RATE}") if problem.logistic else ("normal", "add")
    settings = Settings(
        protocol="parameter-server", servers=2, peers=workers, steps=steps, device="cpu",
        algorithm=f"statistical_query:{kind}", server_update=update,
    )  # fmt: skip
    plain = Scenario.plain(settings)
    groups = tuple(replace(group, step_s=STEP_S) for group in plain.groups)
    records: list[Record] = []
    world = World(
        problem.task(), replace(plain, groups=groups, faults=() if fault is None else (fault,)), records.append
    )
    run_virtual(world.run(within_s=1e5), seed=0)
    ended = [life.peer.conversation for life in world.lives if life.result is not None and life.result.finished]
    models = [talk.position().vector for talk in ended if isinstance(talk, Mapper)]
    assert all(torch.equal(model, models[0]) for model in models)
    return models[0], [record for record in records if isinstance(record, ExchangeRecord)]


def crash(who: int) -> Fault:
    return Fault(kind=Kind.CRASH, who=(who,), at_s=STEP_S * 0.8)


def normal(quick: bool) -> Found:
    problem = Problem(1000 if quick else 5000, 20 if quick else 300, logistic=False)
    x, y = problem.table()
    due = torch.from_numpy(np.linalg.lstsq(x.numpy(), y.numpy(), rcond=None)[0])
    rows, worst, share = list[Row](), 0.0, 0.0
    for name, fault in (("no fault", None), ("a worker lost", crash(1)), ("a server lost", crash(4))):
        model, records = played(problem, 4, 1, fault)
        apart = float((model - due).abs().max())
        worst = max(worst, apart)
        rows.append({"work": "b: normal equations", "system": name, "apart": f"{apart:.1e}"})
        if fault is None:
            sent = max(record.bytes_sent for record in records if record.step == 1)
            share = sent / (8 * (problem.n * (problem.n + 1) / 2 + problem.n))
    rows.append({"work": "d: bytes of a worker", "system": "over its sums", "measured": share})
    return rows, [
        Claim("the summation form is exact", "within 1e-6 of numpy's least squares, whoever is lost", f"{worst:.1e}",
              worst <= 1e-6),
        Claim("each worker sends its sums once", "at most 1.1 times n (n + 1) / 2 + n doubles", f"{share:.2f} times",
              None if quick else share <= 1.1),
    ]  # fmt: skip


def descent(quick: bool) -> Found:
    problem, steps = Problem(400 if quick else 4000, 10, logistic=True), 10 if quick else 60
    due, rows, worst = problem.descended(steps), list[Row](), 0.0
    for workers in (1, 2, 8):
        model, records = played(problem, workers, steps)
        worst = max(worst, float((model - due).abs().max()))
        CURVES[f"{workers} workers"] = [(one.time_s, one.loss) for one in records if one.peer == "0"]
        rows.append({"work": "a: loss of logistic regression", "system": f"{workers} workers",
                     "loss": CURVES[f"{workers} workers"][-1][1]})  # fmt: skip
    lost = float((played(problem, 8, steps, crash(1))[0] - due).abs().max())
    rows.append({"work": "c: models apart", "system": "8 workers", "apart": f"{worst:.1e}"})
    rows.append({"work": "c: models apart", "system": "8 workers, one lost", "apart": f"{lost:.1e}"})
    goal = "the steps of 1, 2 and 8 workers equal those of one machine to 1e-10"
    return rows, [
        Claim("the summation form is exact", goal, f"{worst:.1e}", worst <= 1e-10),
        Claim(
            "(not told) lost workers", "with a worker lost within 1e-3 of the same steps", f"{lost:.1e}", lost <= 1e-3
        ),
    ]


def main() -> int:
    torch.set_num_threads(1)
    options = arguments(__doc__, "statistical_query")
    rows, claims = studied((descent, normal), quick=options.quick)
    figure = chart("Logistic regression by queries", "virtual seconds", "loss", CURVES)
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
