"""What codecs save and what they cost: bytes, speed, error, and the accuracy of what is trained through them.

Bytes are as encoded, against float32. Speed is that of one thread on a vector of 4 MiB of normal numbers (a gradient of
the model below for the sketches, their two halves being project and result), the error that of one encoding.

Accuracy: four workers in this process train a perceptron 784-256-128-10 on Fashion-MNIST by synchronous SGD, 600 steps
of 4 x 32 images, the learning rate falling to 0; their steps are averaged through the codec as its family demands: hop
codecs around a ring that encodes every part anew at each hop, gather codecs summed by all, sketches stage by stage.
What is biased has error feedback; `forgetful` is how it does without. Goals: as many times fewer bytes as the table
says, within a point of no codec.

    python benchmarks/codec_costs.py [--quick] [--json FILE]

The data is Debian's package dataset-fashion-mnist; without it, scikit-learn's digits.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence

import torch
from _images import Data, load
from common import MISSED, Row, arguments, missed
from torch import Tensor, nn

from samovar.aggregation.codecs.codec import Codec, GatherCodec, HopCodec, SketchCodec, SketchState
from samovar.aggregation.codecs.error_feedback import ErrorFeedback
from samovar.aggregation.codecs.registry import parse_codec
from samovar.aggregation.vector import Layout, parts

NONE = "none"
GOALS = {"int8": 3.9, "top_k:0.01": 40.0, "power_sgd:4": 10.0}
"""Times fewer bytes."""
HEADLINES = [NONE, *GOALS]
FORGETFUL = " forgetful"
"""Says that a codec goes without its error feedback: what it is for shows by what is lost."""
ALL = [*HEADLINES, "fp16", "bf16", "qsgd", "qsgd:7:l2", "sign", "top_k:0.01:fp16", "random_k:0.01"]
ALL += [name + FORGETFUL for name in ("sign", "top_k:0.01", "power_sgd:4")]
WITHIN = 1.0
"""Points of accuracy."""
WORKERS, BATCH, STEPS, LEARNING_RATE = 4, 32, 600, 0.2

# How fast, how small, how far off


def seconds(run: Callable[[], object], repeats: int = 15) -> float:
    """The median."""
    times = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


def measure(name: str, layout: Layout) -> Row:
    row: Row = {"work": "bytes, float32 over encoded", "system": name, "median_s": None, "ratio": None, "goal": None}
    if name == NONE or name.endswith(FORGETFUL):
        return row
    codec, values = parse_codec(name), torch.randn(2**20, generator=torch.Generator().manual_seed(0))
    if codec.family == "sketch":
        values = values[: layout.size]
        state = codec.start(layout, 0)
        encode_s = seconds(lambda: codec.begin(values, layout, 0, state).project(0))
        result, mean_s = alone(codec, values, layout, state), seconds(lambda: alone(codec, values, layout, state))
        decode_s, nbytes = max(mean_s - encode_s, 1e-9), layout.dtype.itemsize * sum(codec.elements(layout))
    else:
        payload = codec.encode(values, 0)
        encode_s = seconds(lambda: codec.encode(values, 0))
        decode_s = seconds(lambda: codec.decode(payload, values.numel(), values.dtype))
        result, nbytes = codec.decode(payload, values.numel(), values.dtype), payload.numel()
    error = ((result - values).norm() / values.norm()).item()
    rates = {"encode_GB_per_s": values.nbytes / encode_s / 1e9, "decode_GB_per_s": values.nbytes / decode_s / 1e9}
    row |= {"median_s": encode_s, "ratio": values.nbytes / nbytes, "goal": GOALS.get(name)}
    return row | {"relative_error": error, **rates}


def alone(codec: SketchCodec, values: Tensor, layout: Layout, state: SketchState) -> Tensor:
    """A round of one peer."""
    sketch = codec.begin(values, layout, 0, state)
    for stage in range(sketch.stages):
        sketch.absorb(stage, sketch.project(stage))
    return sketch.result()


# Training through a codec


class Averager:
    """The mean of all workers' vectors, as it comes out of a codec; error feedback for what is biased."""

    def __init__(self, name: str, layout: Layout, seed: int) -> None:
        self.codec: Codec | None = None if name == NONE else parse_codec(name.removesuffix(FORGETFUL))
        self.forgetful = name.endswith(FORGETFUL)
        self.layout, self.seed, self.rounds = layout, seed, 0
        zeros = torch.zeros(layout.size, dtype=layout.dtype)
        self.feedback = [ErrorFeedback.of(zeros) for _ in range(WORKERS)]
        self.state = self.codec.start(layout, seed) if self.codec and self.codec.family == "sketch" else ()

    def mean(self, vectors: Sequence[Tensor]) -> Tensor:
        self.rounds += 1
        if self.codec is None:
            return torch.stack(list(vectors)).mean(dim=0)
        if self.codec.family == "hop":
            return self._around(self.codec, vectors)
        corrected = [feedback.correct(vector) for feedback, vector in zip(self.feedback, vectors, strict=True)]
        if self.codec.family == "gather":
            mean, sent = self._to_all(self.codec, corrected)
        else:
            mean, sent = self._in_stages(self.codec, corrected)
        for feedback, before, after in zip(self.feedback, corrected, sent, strict=True):
            if not self.forgetful:
                feedback.keep(before, after)
        return mean

    def _around(self, codec: HopCodec, vectors: Sequence[Tensor]) -> Tensor:
        """A ring: each part is encoded by every worker that passes it on, and at last by the one that has the sum."""
        mean = torch.empty_like(vectors[0])
        for index, part in enumerate(parts(mean.numel(), WORKERS)):
            span, total = slice(*part), torch.zeros(part.stop - part.start)
            for hop in range(WORKERS):
                total = total + vectors[(index + 1 + hop) % WORKERS][span]
                total = codec.decode(
                    codec.encode(total, number(self.seed, self.rounds, index, hop)), total.numel(), total.dtype
                )
            mean[span] = total / WORKERS
        return mean

    def _to_all(self, codec: GatherCodec, vectors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        sent = [codec.decode(codec.encode(vector, 0), vector.numel(), vector.dtype) for vector in vectors]
        return torch.stack(sent).mean(dim=0), sent

    def _in_stages(self, codec: SketchCodec, vectors: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        seed = number(self.seed, self.rounds)
        sketches = [codec.begin(vector, self.layout, seed, self.state) for vector in vectors]
        for stage in range(sketches[0].stages):
            mean = torch.stack([sketch.project(stage) for sketch in sketches]).mean(dim=0)
            for sketch in sketches:
                sketch.absorb(stage, mean)
        self.state = sketches[0].state()
        return sketches[0].result(), [sketch.own() for sketch in sketches]


def number(*purpose: int) -> int:
    """One seed out of several numbers below 2**15."""
    return sum(part << 15 * place for place, part in enumerate(purpose))


def network(inputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))


def accuracy(name: str, data: Data, seed: int, steps: int) -> float:
    """Per cent right on the held-out images after training."""
    images, labels, test_images, test_labels = data
    torch.manual_seed(seed)
    model = network(images.shape[1])
    parameters = dict(model.named_parameters())
    layout = Layout.of(parameters)
    vector, averager = layout.flatten(parameters), Averager(name, layout, seed)
    for step in range(steps):
        learning_rate = LEARNING_RATE * (1 - step / steps)
        moves = []
        for _ in range(WORKERS):
            batch = torch.randint(len(images), (BATCH,))
            model.zero_grad()
            nn.functional.cross_entropy(model(images[batch]), labels[batch]).backward()
            gradients = {key: one.grad for key, one in parameters.items() if one.grad is not None}
            gradient = layout.flatten(gradients)
            moves.append(gradient.mul_(learning_rate))
        vector = vector - averager.mean(moves)
        layout.load(vector, parameters)
    with torch.no_grad():
        return 100 * float((model(test_images).argmax(dim=1) == test_labels).float().mean())


def show(rows: Sequence[Row], work: str) -> None:
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, torch {torch.__version__}"
    )
    heads = ["bytes", "goal", "encode", "decode", "error", work, "lost"]
    print(f"{'codec':<26}" + "".join(f"{head:>10}" for head in heads[:5]) + f"{heads[5]:>26}{heads[6]:>8}")
    for row in rows:
        goal = "" if row["goal"] is None else f"{row['goal']:g} x"
        cells = ["", "", "", "", ""]
        if row["ratio"] is not None:
            rates = [f"{row[key]:.2f} GB/s" for key in ("encode_GB_per_s", "decode_GB_per_s")]
            cells = [f"{row['ratio']:.1f} x", goal, *rates, f"{row['relative_error']:.4f}"]
        shown = " ".join(f"{found:.1f}" for found in row["accuracies"])
        print(f"{row['system']:<26}" + "".join(f"{cell:>10}" for cell in cells) + f"{shown:>26}{row['lost']:>8.2f}")


def main() -> int:
    options = arguments(__doc__)
    torch.set_num_threads(1)
    data_name, data = load()
    names, seeds, steps = (HEADLINES, range(1), 300) if options.quick else (ALL, range(3), STEPS)
    layout = Layout.of(dict(network(data[0].shape[1]).named_parameters()))
    rows: list[Row] = []
    for name in names:
        row = measure(name, layout)
        row["accuracies"] = [accuracy(name, data, seed, steps) for seed in seeds]
        row["lost"] = statistics.mean(rows[0]["accuracies"] if rows else row["accuracies"])
        row["lost"] -= statistics.mean(row["accuracies"])
        rows.append(row)
    show(rows, f"% right, {data_name}")
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    worse = [row for row in rows if row["system"] in GOALS and row["lost"] > WITHIN]
    for row in worse:
        print(f"more than {WITHIN:g} point lost: {row['system']}: {row['lost']:.2f}", file=sys.stderr)
    return MISSED if worse else missed([row for row in rows if row["goal"] is not None])


if __name__ == "__main__":
    sys.exit(main())
