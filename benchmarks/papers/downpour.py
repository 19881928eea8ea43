"""Downpour SGD with Adagrad (Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.1).

    python benchmarks/papers/downpour.py [--quick] [--json FILE] [--figure FILE]

Real processes on this machine: 4 workers and 2 servers, each with a copy of the model, train a network of one hidden
layer on Fashion-MNIST. Workers push and pull at each step, and wait for nobody. Once all begin together, and once the
first worker makes 200 updates before the others begin (warm start). Beside it workers in step, whose mean gradient is
one update. The accuracy is that of all test images.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from _common import Claim, Curve, Found, Row, arguments, chart, conclude, studied

from samovar import train
from samovar.peers.records.records import ExchangeRecord
from samovar.peers.records.run import read_run

WORKERS, SERVERS, STEPS, WARM = 4, 2, 1000, 200
TASK = Path(__file__).parents[1] / "_fashion_task.py"
CURVES: dict[str, Curve] = {}
GOAL = 0.85


def run(algorithm: str, steps: int) -> list[ExchangeRecord]:
    """The workers' records, in the order of time."""
    with tempfile.TemporaryDirectory() as folder:
        train(
            TASK,
            peers=WORKERS,
            servers=SERVERS,
            protocol="parameter_server",
            algorithm=algorithm,
            server_update="adagrad:0.01",
            steps=steps,
            evaluate_every=max(1, steps // 20),
            run=Path(folder) / "run",
            quiet=True,
            report=False,
        )
        told = [one for one in read_run(Path(folder) / "run").exchanges if one.step]
    return sorted(told, key=lambda one: one.time_s)


def downpour(quick: bool) -> Found:
    steps, warm, rows = 40 if quick else STEPS, 10 if quick else WARM, list[Row]()
    for name, algorithm in (
        ("no warm start", "downpour"),
        (f"warm start of {warm} updates", f"downpour:1:1:{warm}"),
        ("in step", "sync"),
    ):
        records = run(algorithm, steps)
        CURVES[name] = [(one.time_s, one.metrics["accuracy"]) for one in records if one.metrics]
        first = [one.loss for one in records if one.step <= steps // 10]
        took_s = records[-1].time_s - records[0].time_s
        rows.append(
            {"start": name, "accuracy": CURVES[name][-1][1], "loss at first": sum(first) / len(first), "s": took_s}
        )
    print(f"  {WORKERS} workers, {SERVERS} servers, {steps} steps each, adagrad:0.01")
    told = ", ".join(f"{row['start']}: {row['accuracy']:.4f}" for row in rows)
    early = ", ".join(f"{row['start']}: {row['loss at first']:.3f}" for row in rows)
    return rows, [
        Claim(
            "Downpour SGD with Adagrad, which a warm start and Adagrad make stable",
            f"accuracy of at least {GOAL}, with and without warm start",
            told,
            None if quick else min(row["accuracy"] for row in rows[:2]) >= GOAL,
        ),
        Claim("a warm start avoids the trouble of many workers at first", "mean loss of the first tenth", early),
    ]


def main() -> int:
    options = arguments(__doc__, "downpour")
    rows, claims = studied([downpour], quick=options.quick)
    figure = chart("Downpour SGD with Adagrad, Fashion-MNIST", "seconds", "accuracy", CURVES)
    return conclude(options, rows, claims, figure)


if __name__ == "__main__":
    sys.exit(main())
