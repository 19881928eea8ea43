"""GloVe (Pennington, Socher & Manning, EMNLP 2014) on a parameter server: `examples/glove.py` with 4 workers and 2
servers, rows of two tables, and Adagrad on the servers.

    python benchmarks/papers/glove.py [--quick] [--text FILE] [--json FILE] [--figure FILE]

The peers are simulated in virtual time; the model, its batches and its numbers are real. The text is the example's, or
FILE.

    a  cost by passes over the pairs: 4 workers in step (bsp), which share a batch, beside one process with
       torch.optim.Adagrad
    b  the same where no worker waits (async), beside one process that takes such small batches one by one. It is told
       and not judged: here each batch has most rows, and the paper's threads have one pair
    c  analogies on a made-up corpus with two relations, for instance capital to country, of 20 pairs each: a is to b as
       c is to d
    d  the twenty nearest neighbours of some words of the text
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from itertools import islice, permutations
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from _common import Claim, Curve, Found, Row, chart, conclude, parser
from _study import play
from torch import nn

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.peers.training.trainer import Trainer
from samovar.sims.scenarios.scenario import Scenario

EXAMPLE = Path(__file__).parents[2] / "examples" / "glove.py"
WORKERS, RATE, PAIRS = 4, 0.05, 20
RELATIONS = "xy"


class Glove:
    """The example with one text."""

    def __init__(self, text: Path | None) -> None:
        sys.argv = [str(EXAMPLE), *([] if text is None else [str(text)])]
        self.task = load_task(EXAMPLE)
        self.module: Any = sys.modules[self.task.model.__module__]
        self.batch: int = WORKERS * self.module.BATCH
        self.steps = len(self.module.cooccurrences()[0]) // self.batch
        """Steps of a pass, with whole batches."""

    def together(self, passes: int, **own: Any) -> tuple[Curve, nn.Module]:
        """The cost by passes over the pairs, of workers that share a batch, and the model at the end."""
        self.module.BATCH = self.batch // WORKERS
        settings = Settings(
            protocol="parameter-server", peers=WORKERS, servers=2, copies=1, device="cpu", steps=passes * self.steps,
            evaluate_every=self.steps, server_update=f"adagrad:{RATE}", patience_s=1e4, **own,
        )  # fmt: skip
        world, records = play(self.task, Scenario.plain(settings))
        told: list[ExchangeRecord] = [one for one in records if one.peer == "0" and one.metrics]
        return [(one.step // self.steps, one.metrics["cost"]) for one in told], world.lives[0].trainer.model

    def alone(self, passes: int, parts: int) -> Curve:
        """The cost of one process by passes, with updates by whole batches, or by so many parts of each."""
        self.module.BATCH = self.batch // parts
        first = Trainer(self.task, seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"))
        model, found = first.model, []
        optimizer = torch.optim.Adagrad(model.parameters(), lr=RATE)
        stream = (batch for _ in range(10**6) for batch in self.task.data(0, 1))
        for done in range(1, passes + 1):
            for batch in islice(stream, self.steps * parts):
                optimizer.zero_grad()
                self.task.loss(model, batch).backward()
                optimizer.step()
            found.append((done, self.module.evaluate(model)["cost"]))
        return found


def apart(one: Curve, other: Curve) -> float:
    """The largest relative difference between two curves of the same passes."""
    return max(abs(cost / reference - 1) for (_, cost), (_, reference) in zip(one, other, strict=True))


def curves(glove: Glove, quick: bool, drawn: dict[str, Curve], claims: list[Claim]) -> tuple[list[Row], nn.Module]:
    """The rows of a and b, and the model of a; their curves and claims are added to `drawn` and `claims`."""
    passes, rows = 2 if quick else 8, list[Row]()
    in_step, model = glove.together(passes)
    told = {
        "in step": (in_step, glove.alone(passes, 1)),
        "async": (
            glove.together(passes, algorithm="downpour", consistency="async")[0],
            glove.alone(passes, WORKERS),
        ),
    }
    for how, (ours, one) in told.items():
        both = {f"4 workers, {how}": ours, f"one process, {how}": one}
        drawn |= both
        work = f"a: cost after {passes} passes"
        rows += [{"work": work, "system": name, "measured": curve[-1][1]} for name, curve in both.items()]
        difference, judged = apart(ours, one), how == "in step"
        goal = f"{how}: the curve within 2 % of one process" + ("" if judged else ", not judged")
        claim = Claim("threads without locks train as one does", goal, f"{difference:.2%}")
        claims.append(replace(claim, held=difference <= 0.02) if judged else claim)
    return rows, model


def word(kind: str, number: int) -> str:
    return f"{kind}{chr(97 + number // 26)}{chr(97 + number % 26)}"


def corpus(sentences: int = 12_000) -> str:
    """Sentences about an item of a relation, which stands between words of its pair and words of its side."""
    chance, said = random.Random(0), list[str]()
    for _ in range(sentences):
        relation, pair, side = chance.choice(RELATIONS), chance.randrange(PAIRS), chance.choice("lr")
        around = [word(f"{relation}topic", 3 * pair + chance.randrange(3)) for _ in range(2)]
        around += [word(f"{relation}side{side}", chance.randrange(5)) for _ in range(2)]
        chance.shuffle(around)
        said += [*around[:2], word(f"{relation}item{side}", pair), *around[2:]]
        said += [word("filler", chance.randrange(60)) for _ in range(6)]
    return " ".join(said)


def analogies() -> Found:
    with TemporaryDirectory() as folder:
        file = Path(folder, "text")
        file.write_text(corpus(), "utf-8")
        glove = Glove(file)
    _, model = glove.together(10)
    known, vectors = glove.module.words()[0], model.vectors()  # type: ignore[operator]
    right = asked = 0
    for relation in RELATIONS:
        for one, other in permutations(range(PAIRS), 2):
            names = [(one, "l"), (one, "r"), (other, "l"), (other, "r")]
            a, b, c, d = (known.index(word(f"{relation}item{side}", pair)) for pair, side in names)
            right += glove.module.nearest(vectors, vectors[b] - vectors[a] + vectors[c], 1, [a, b, c]) == [d]
            asked += 1
    rows = [{"work": "c: analogies of two planted relations", "right": right, "of": asked}]
    return rows, [
        Claim("75 % of analogies, 42 G tokens", "at least 90 %", f"{right / asked:.1%}", right >= 0.9 * asked)
    ]


def neighbours(glove: Glove, model: nn.Module) -> None:
    known, vectors = glove.module.words()[0], model.vectors()  # type: ignore[operator]
    for one in known[60 : len(known) // 2 : len(known) // 16]:
        own: int = known.index(one)
        near: list[int] = glove.module.nearest(vectors, vectors[own], 20, [own])
        print(f"{one:>14}:", " ".join(known[number] for number in near))


def main() -> int:
    torch.set_num_threads(1)
    known = parser(__doc__, "glove")
    known.add_argument("--text", type=Path, metavar="FILE", help="another text than the example's")
    options, drawn = known.parse_args(), dict[str, Curve]()
    rows, claims = analogies()
    glove = Glove(options.text)
    more, model = curves(glove, options.quick, drawn, claims)
    rows += more
    for row in rows:
        print("  ".join(f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()))
    neighbours(glove, model)
    return conclude(options, rows, claims, chart("GloVe", "passes over the pairs", "weighted squared error", drawn))


if __name__ == "__main__":
    sys.exit(main())
