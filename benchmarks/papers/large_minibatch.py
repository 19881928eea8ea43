"""Accurate, large minibatch SGD (Goyal et al., arXiv 1706.02677): with k times the batch, k times the learning rate,
reached gradually.

    python benchmarks/papers/large_minibatch.py [--quick] [--json FILE] [--figure FILE]

A perceptron 64-32-10 sees a stream of samples, always fresh ones: 30 Gaussian clusters, ten classes, a fifth of the
labels drawn anew (so no loss falls far below 1.1). Peers of synchronous data parallel average their gradients, as one
process with all their batches would, to rounding (`tests/peers/test_synchronous.py`); so what the recipe does to the
loss is shown in one process. All runs see equally many samples. Losses are held-out cross-entropies, means over seeds.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from _common import Claim, arguments, chart, conclude
from _tasks import HELD_OUT, Stream, network
from torch import nn

BATCH, SAMPLES = 8, 64_000
LOW, EDGE = 0.05, 0.2
"""Learning rates for one batch: a usual one, and the largest that is stable."""
WARM_UP = 0.055
"""Of all steps: 5 of 90 epochs."""


@dataclass(frozen=True)
class Recipe:
    """`batches`: how many times the small batch; `rate`: of the learning rate at its height."""

    batches: int
    rate: float
    warm_up: bool = False

    def rates(self, steps: int) -> Iterator[float]:
        """From the small batch's rate to `rate`."""
        rising = max(1, round(WARM_UP * steps)) if self.warm_up else 0
        for step in range(steps):
            share = min(1.0, (step + 1) / rising) if rising else 1.0
            yield self.rate / self.batches + share * (self.rate - self.rate / self.batches)


def losses(recipe: Recipe, seed: int, samples: int) -> list[tuple[float, float]]:
    """(samples seen, held-out loss), twenty times; infinite once the loss is not finite."""
    stream, model = Stream(seed), network(seed)
    held_out = stream.draw(HELD_OUT)
    steps = samples // (BATCH * recipe.batches)
    optimizer = torch.optim.SGD(model.parameters(), lr=recipe.rate)
    curve: list[tuple[float, float]] = []
    for step, rate in enumerate(recipe.rates(steps), 1):
        optimizer.param_groups[0]["lr"] = rate
        inputs, labels = stream.draw(BATCH * recipe.batches)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        if step % max(1, steps // 20) == 0 or step == steps:
            with torch.no_grad():
                loss = nn.functional.cross_entropy(model(held_out[0]), held_out[1]).item()
            curve.append((step * BATCH * recipe.batches, loss if math.isfinite(loss) else math.inf))
    return curve


SMALL, SCALED, AT_ONCE, UNSCALED = (
    Recipe(1, LOW), Recipe(8, 8 * LOW, warm_up=True), Recipe(8, 8 * LOW), Recipe(8, LOW)
)  # fmt: skip
EDGE_SMALL, EDGE_SCALED, EDGE_AT_ONCE = Recipe(1, EDGE), Recipe(64, 64 * EDGE, warm_up=True), Recipe(64, 64 * EDGE)
RECIPES = {
    f"batch {BATCH}, rate {LOW:g}": SMALL,
    "8 times both, warm-up": SCALED,
    "8 times both at once": AT_ONCE,
    "8 times the batch only": UNSCALED,
    f"batch {BATCH}, rate {EDGE:g}": EDGE_SMALL,
    "64 times both, warm-up": EDGE_SCALED,
    "64 times both at once": EDGE_AT_ONCE,
}


def claims(ends: dict[Recipe, float], *, quick: bool) -> list[Claim]:
    def more(recipe: Recipe, than: Recipe) -> str:
        return f"{100 * (ends[recipe] / ends[than] - 1):+.1f} %"

    def judged(held: bool) -> bool | None:
        return None if quick else held

    return [
        Claim(
            "ResNet-50, batch 256 to 8192: no loss of accuracy (23.74 against 23.60 % errors)",
            "8 times the batch and the rate, with warm-up: loss within 1 %",
            more(SCALED, SMALL),
            judged(abs(ends[SCALED] / ends[SMALL] - 1) <= 0.01),
        ),
        Claim(
            "the rate has to grow with the batch",
            "8 times the batch only: worse by 10 % or more (the control)",
            more(UNSCALED, SMALL),
            judged(ends[UNSCALED] >= 1.1 * ends[SMALL]),
        ),
        Claim("without warm-up large rates do harm", "8 times, at once: told", more(AT_ONCE, SMALL)),
        Claim(
            "without warm-up large rates do harm",
            f"64 times, at rate {EDGE:g} a batch, at once: worse than with warm-up by 10 % or more",
            more(EDGE_AT_ONCE, EDGE_SCALED),
            judged(ends[EDGE_AT_ONCE] >= 1.1 * ends[EDGE_SCALED]),
        ),
        Claim("beyond some batch the rule fails", "64 times, with warm-up: told", more(EDGE_SCALED, EDGE_SMALL)),
    ]


def main() -> int:
    options = arguments(__doc__, "large_minibatch")
    torch.set_num_threads(1)
    seeds, samples = (range(1), SAMPLES // 8) if options.quick else (range(3), SAMPLES)
    rows, ends, curves = [], {}, {}
    for name, recipe in RECIPES.items():
        found = [losses(recipe, seed, samples) for seed in seeds]
        lasts = [curve[-1][1] for curve in found]
        ends[recipe], curves[name] = statistics.mean(lasts), found[0]
        print(f"{name:<24}{ends[recipe]:>8.4f}   ({', '.join(f'{last:.3f}' for last in lasts)})", flush=True)
        rows.append({"system": name, "losses": lasts, "curve": found[0]})
    figure = chart("Held-out loss, one seed", "samples seen", "cross-entropy", curves)
    return conclude(options, rows, claims(ends, quick=options.quick), figure)


if __name__ == "__main__":
    sys.exit(main())
