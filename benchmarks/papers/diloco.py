"""DiLoCo (Douillard et al., arXiv 2311.08105) and Streaming DiLoCo (arXiv 2501.18512): a transformer trained by peers
that talk every 50 steps, against synchronous data parallel with the same number of steps.

    python benchmarks/papers/diloco.py [--quick] [--json FILE] [--figure FILE] [--seeds N] [--fresh]

A character-level transformer learns the reference of the Python language (as pydoc has it). Four simulated peers run
the real peer code, in virtual time, on links of 100 Mbit/s; a step takes 0.2 s. Inside is AdamW, whose state each peer
keeps; outside Nesterov. As in the paper all begin with a network that one worker has trained before; with ``--fresh``
with fresh weights, for eight times as many steps at twice the learning rate. Data parallel averages every gradient, and
all take the same AdamW step. Bytes are those of all peers, headers, heartbeats and acknowledgements included. Held-out
losses, nats a character, the mean of the seeds: each has its own network to begin with and its own order of the text.

Peers wait for a fragment's mean, which takes a hundredth of the time between two; or, "delayed", go on and merge it 10
steps later, with all that they have done since or half of each ("mixed").
"""

from __future__ import annotations

import asyncio
import copy
import multiprocessing
import statistics
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from _common import Claim, Curve, chart, conclude, parsed_with_seeds, parser
from _simulated import connected, joined
from _transformer import Scheduled, Start, loss, pretrained

from samovar.aggregation.vector import Layout, Part
from samovar.peers.records.records import ExchangeRecord, Record
from samovar.peers.run_settings.settings import Settings
from samovar.peers.settings.link_text import parse_duration, parse_link
from samovar.peers.task.task import Task
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.filling import Filling
from samovar.protocols.local_sgd.local_sgd import Contribution
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.network import Network
from samovar.sims.world.world import World


class Plan(NamedTuple):
    """Of a run: steps of pretraining, steps of each peer, and the highest learning rate inside."""

    pretraining: int
    steps: int
    rate: float


PEERS, PERIOD, FRAGMENTS = 4, 50, 5
LINK, STEP_TIME = "100mbit,5ms", "200ms"
USUAL, FRESH, QUICK = Plan(800, 500, 4e-3), Plan(0, 4000, 8e-3), Plan(20, 100, 4e-3)
OUTER = "nesterov:0.7:0.9"
PARALLEL, DILOCO, INT8, STREAMING, DELAYED, MIXED, PLAIN, MOMENTS = (
    "data parallel", "DiLoCo", "DiLoCo, int8", "streaming, int8", "... delayed", "... and mixed", "plain averaging",
    "... of moments too",
)  # fmt: skip
IN_PARTS: dict[str, Any] = {"outer": OUTER, "period": str(PERIOD // FRAGMENTS), "codec": "int8", "fragments": FRAGMENTS}
SYSTEMS: dict[str, dict[str, Any]] = {
    DILOCO: {"outer": OUTER, "period": str(PERIOD)},
    INT8: {"outer": OUTER, "period": str(PERIOD), "codec": "int8"},
    STREAMING: IN_PARTS,
    DELAYED: {**IN_PARTS, "overlap": True},
    MIXED: {**IN_PARTS, "overlap": True, "overlap_share": 0.5},
    PLAIN: {"period": str(PERIOD)},
    MOMENTS: {"period": str(PERIOD), "inner": "averaged"},
}
"""All that peers are told apart from how many steps."""


@dataclass
class Meter:
    """What a network has carried: in all, and at most within a second."""

    network: Network
    total: int = 0
    peak: int = 0
    _seen: list[tuple[float, int]] = field(default_factory=list)
    _first: int = 0

    def __post_init__(self) -> None:
        self.network.after.append(self._look)

    def _look(self, receiver: str) -> None:
        now, self.total = asyncio.get_running_loop().time(), sum(self.network.carried.values())
        self._seen.append((now, self.total))
        while self._seen[self._first][0] <= now - 1.0:
            self._first += 1
        before = self._seen[self._first - 1][1] if self._first else 0
        self.peak = max(self.peak, self.total - before)


@dataclass(frozen=True)
class Trained:
    """A run: its held-out loss over the steps, and what it sent."""

    curve: Curve
    sent: int
    peak: int

    @property
    def loss(self) -> float:
        return self.curve[-1][1]


def diloco(start: Start, plan: Plan, wished: dict[str, Any]) -> Trained:
    """The peers of a task, as `samovar simulate` has them."""
    task = Task(
        Path(__file__),
        lambda: copy.deepcopy(start.model),
        lambda part, parts: start.text.batches(part, start.seed),
        loss,
        start.text.loss_held_out,
        lambda parameters: Scheduled(parameters, plan.steps, plan.rate),
    )
    settings = Settings(
        peers=PEERS, steps=plan.steps, device="cpu", link=LINK, step_time=STEP_TIME, checkpoint_every_s=1e9,
        evaluate_every=max(1, PERIOD // int(wished["period"])), **wished,
    )  # fmt: skip
    curve: list[tuple[float, float]] = []

    def record(entry: Record) -> None:
        if isinstance(entry, ExchangeRecord) and "accuracy" in entry.metrics:  # what `evaluate` gives
            curve.append((entry.step, entry.metrics["accuracy"]))

    world = World(task, Scenario.plain(settings), record)
    world.log.judged = False
    meter = Meter(world.network)
    run_virtual(world.run())
    return Trained(curve, meter.total, meter.peak)


class Parallel:
    """A peer of synchronous data parallel: its gradients are averaged with those of all, and all take the same step."""

    def __init__(self, start: Start, index: int, plan: Plan) -> None:
        self.text, self.index, self.plan = start.text, index, plan
        self.model, self.batches = copy.deepcopy(start.model), start.text.batches(index, start.seed)
        self.parameters = dict(self.model.named_parameters())
        self.layout = Layout.of(self.parameters)
        self.curve: list[tuple[float, float]] = []

    async def run(self, endpoint: Endpoint) -> None:
        sgd = await joined(
            endpoint, self.index, first=0, founders=PEERS, layout=self.layout, schedule="ring", steps=self.plan.steps,
            buckets=[Part(0, self.layout.size)],
        )  # fmt: skip
        await sgd.gather()
        optimizer = Scheduled(self.model.parameters(), self.plan.steps, self.plan.rate)
        for step in range(1, self.plan.steps + 1):
            self.model.zero_grad()
            loss(self.model, next(self.batches)).backward()
            await asyncio.sleep(parse_duration(STEP_TIME))
            own = self.parameters.items()
            gradients = {name: parameter.grad for name, parameter in own if parameter.grad is not None}
            filling = Filling(self.layout.flatten(gradients), 1)
            filling.fill(0)
            outcome = await sgd.average(Contribution(filling.vector, 1.0, 0.0, 0.0, 0.0, filling))
            self.layout.load(outcome.state.vector, gradients)
            optimizer.step()
            if self.index == 0 and step % PERIOD == 0:
                self.curve.append((step, self.text.loss_held_out(self.model)))
        await sgd.membership.finish()
        sgd.membership.close()


def data_parallel(start: Start, plan: Plan) -> Trained:
    peers = [Parallel(start, index, plan) for index in range(PEERS)]

    async def main() -> Trained:
        network = Network(parse_link(LINK), 1)
        meter = Meter(network)
        endpoints = await connected(network, PEERS, lambda index: list(range(PEERS)))
        await asyncio.gather(*(peer.run(endpoint) for peer, endpoint in zip(peers, endpoints, strict=True)))
        for endpoint in endpoints:
            endpoint.abort()
        return Trained(peers[0].curve, meter.total, meter.peak)

    return run_virtual(main())


def trained(job: tuple[str, int, Plan]) -> Trained:
    name, seed, plan = job
    torch.set_num_threads(1)
    start = pretrained(seed, plan.pretraining)
    return data_parallel(start, plan) if name == PARALLEL else diloco(start, plan, SYSTEMS[name])


@dataclass(frozen=True)
class Found:
    """The runs of one system, one a seed."""

    runs: list[Trained]

    @property
    def curve(self) -> Curve:
        each = zip(*(run.curve for run in self.runs), strict=True)
        return [(at[0][0], statistics.fmean(loss for _, loss in at)) for at in each]

    @property
    def losses(self) -> list[float]:
        return [run.loss for run in self.runs]

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses)

    @property
    def sent(self) -> float:
        return statistics.fmean(run.sent for run in self.runs)

    @property
    def peak(self) -> int:
        return max(run.peak for run in self.runs)


def claims(found: dict[str, Found], *, quick: bool) -> list[Claim]:
    base = found[PARALLEL]

    def lost(name: str, over: str) -> float:
        return 100 * (found[name].loss / found[over].loss - 1)

    def told(name: str, over: str) -> str:
        """With that of the best and of the worst seed."""
        each = [100 * (ours / theirs - 1) for ours, theirs in zip(found[name].losses, found[over].losses, strict=True)]
        return f"{lost(name, over):+.2f} % ({min(each):+.2f} to {max(each):+.2f})"

    def judged(held: bool) -> bool | None:
        return None if quick else held

    fewer, fewest = (base.sent / found[name].sent for name in (DILOCO, STREAMING))
    lower = found[INT8].peak / found[STREAMING].peak
    return [
        Claim(
            "DiLoCo, 8 workers on C4: as good as fully synchronous (H = 500)",
            f"H = {PERIOD}, {PEERS} peers: loss within 2 %",
            told(DILOCO, PARALLEL),
            judged(lost(DILOCO, PARALLEL) <= 2),
        ),
        Claim(
            "plain averaging every H steps is worse than DiLoCo",
            "worse (the control)",
            told(PLAIN, PARALLEL),
            judged(found[PLAIN].loss > found[DILOCO].loss),
        ),
        Claim("with 500 times less communication (H = 500)", "40 times fewer bytes", f"{fewer:.1f} times", fewer >= 40),
        Claim(
            "Streaming DiLoCo: two orders of magnitude fewer bits, as good as before",
            "int8 and fragments: loss within another 1 %",
            told(STREAMING, DILOCO),
            judged(lost(STREAMING, DILOCO) <= 1),
        ),
        Claim("(the same)", "150 times fewer bytes", f"{fewest:.0f} times", fewest >= 150),
        Claim(
            "its peak bandwidth falls with the size of a fragment",
            f"{FRAGMENTS} fragments: the most in any second 3 times less",
            f"{lower:.2f} times",
            lower >= 3,
        ),
        Claim(
            "its communication overlaps with steps, which costs nothing (alpha = 0.5)",
            f"delayed by {PERIOD // FRAGMENTS} steps, mixed or not: loss within 1 %",
            ", ".join(told(name, STREAMING) for name in (MIXED, DELAYED)),
            judged(max(lost(MIXED, STREAMING), lost(DELAYED, STREAMING)) <= 1),
        ),
    ]


def main() -> int:
    known = parser(__doc__, "diloco")
    known.add_argument("--fresh", action="store_true", help="begin with fresh weights")
    options = parsed_with_seeds(known, 3)
    seeds = options.seeds
    plan = QUICK if options.quick else FRESH if options.fresh else USUAL
    print(f"{plan.pretraining} steps of pretraining, then {plan.steps} steps of {PEERS} peers; {len(seeds)} seeds")
    print(f"{'':<18}{'loss':>8}{'sent':>12}{'most in 1 s':>14}")
    found, rows = dict[str, Found](), []
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        systems = (PARALLEL, *SYSTEMS)
        done = pool.imap(trained, [(name, seed, plan) for name in systems for seed in seeds])
        for name in systems:
            run = found[name] = Found([next(done) for _ in seeds])
            print(f"{name:<18}{run.loss:>8.4f}{run.sent / 1e6:>9.2f} MB{run.peak / 1e6:>11.3f} MB", flush=True)
            carried = {"bytes": run.sent, "peak_bytes": run.peak}
            rows.append({"system": name, "loss": run.loss, "losses": run.losses, **carried, "curve": run.curve})
    curves = {name: run.curve for name, run in found.items()}
    figure = chart("Held-out loss over the steps of each peer", "steps", "nats a character", curves)
    return conclude(options, rows, claims(found, quick=options.quick), figure)


if __name__ == "__main__":
    sys.exit(main())
