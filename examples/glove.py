"""Word vectors by GloVe (Pennington et al., EMNLP 2014): a task with tables, of which a batch needs few rows.

samovar train examples/glove.py --peers 4 --protocol parameter-server --server-update adagrad:0.05 --steps 2000
python examples/glove.py runs/glove-001

The second command prints the neighbours of some words. `-- FILE` behind the first, and FILE behind the second, take
another text than the Bible of Debian's package bible-kjv; where that is not installed, the docstrings of PyTorch.
"""

import ast
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path

import torch
from torch import Tensor, nn

WINDOW, LEAST, WIDTH = 10, 10, 50
"""Words to each side that count as context; the fewest times that a word occurs to have a vector; elements of one."""
X_MAX, ALPHA = 10.0, 0.75
BATCH, PARTS = 512, 8
METRICS = {"cost": "lower"}


def text() -> str:
    if len(sys.argv) > 1:
        return Path(sys.argv[-1]).read_text("utf-8")
    if (bible := shutil.which("bible")) is not None:
        return subprocess.run([bible, "-f", "gen1:1-rev22:21"], capture_output=True, check=True, text=True).stdout
    found = []
    for file in sorted(Path(torch.__file__).parent.glob("nn/**/*.py")):
        nodes = ast.walk(ast.parse(file.read_text("utf-8")))
        found += [one.value for one in nodes if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return "\n".join(one for one in found if len(one) > 200)


@cache
def words() -> tuple[list[str], Tensor]:
    """The vocabulary, the most frequent word first, and the text [n] as numbers in it; rarer words are left out."""
    spoken = re.findall(r"[a-z]+", re.sub(r"\w*\d\S*", " ", text().lower()))
    known = [word for word, times in Counter(spoken).most_common() if times >= LEAST]
    number = {word: index for index, word in enumerate(known)}
    return known, torch.tensor([number[word] for word in spoken if word in number])


Counts = tuple[Tensor, Tensor]
"""Pairs of words, as word * size of the vocabulary + context, ascending, and the sum of 1 / distance over each."""


def merged(counts: list[Counts]) -> Counts:
    """Reduce: the sum of the counts of several parts of a text."""
    pairs, places = torch.unique(torch.cat([pairs for pairs, _ in counts]), return_inverse=True)
    times = torch.zeros(len(pairs), dtype=torch.float64)
    return pairs, times.index_add_(0, places, torch.cat([times for _, times in counts]))


def counted(spoken: Tensor, first: int, last: int, size: int) -> Counts:
    """Map: the counts of the words `first` to `last` of a text with the words behind them."""
    found = []
    for distance in range(1, WINDOW + 1):
        behind = spoken[first + distance : last + distance]
        pairs = spoken[first : first + len(behind)] * size + behind
        found.append((pairs, torch.full((len(pairs),), 1.0 / distance, dtype=torch.float64)))
    return merged(found)


@cache
def cooccurrences() -> tuple[Tensor, Tensor, Tensor]:
    """Word, context and their count, of all pairs [m] that occur, each in both orders."""
    known, spoken = words()
    bounds, size = [len(spoken) * part // PARTS for part in range(PARTS + 1)], len(known)
    pairs, times = merged([counted(spoken, first, last, size) for first, last in pairwise(bounds)])
    pairs, times = merged([(pairs, times), (pairs % size * size + pairs // size, times)])
    return pairs // size, pairs % size, times.float()


class GloVe(nn.Module):
    """Each row is a vector, and behind it a bias."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.words = nn.Embedding(size, WIDTH + 1, sparse=True)
        self.contexts = nn.Embedding(size, WIDTH + 1, sparse=True)
        for table in (self.words, self.contexts):
            nn.init.uniform_(table.weight, -0.5 / WIDTH, 0.5 / WIDTH)

    def forward(self, word: Tensor, context: Tensor) -> Tensor:
        one: Tensor = self.words(word)
        other: Tensor = self.contexts(context)
        return (one[:, :-1] * other[:, :-1]).sum(1) + one[:, -1] + other[:, -1]

    def vectors(self) -> Tensor:
        """The sum of a word's two vectors [words, WIDTH], of unit length."""
        both: Tensor = (self.words.weight + self.contexts.weight).detach()[:, :-1]
        return nn.functional.normalize(both)


def model() -> GloVe:
    return GloVe(len(words()[0]))


class Pairs:
    """Every parts-th pair, in another order each time, in batches of BATCH; what is left over waits for another
    time."""

    def __init__(self, part: int, parts: int) -> None:
        self.every = [column[part::parts] for column in cooccurrences()]

    def __len__(self) -> int:
        return len(self.every[0]) // BATCH

    def __iter__(self) -> Iterator[list[Tensor]]:
        for some in torch.randperm(len(self.every[0]))[: len(self) * BATCH].split(BATCH):
            yield [column[some] for column in self.every]


def data(part: int, parts: int) -> Pairs:
    return Pairs(part, parts)


def rows(batch: list[Tensor]) -> dict[str, Tensor]:
    word, context, _ = batch
    return {"words": word, "contexts": context}


def loss(model: nn.Module, batch: list[Tensor]) -> Tensor:
    """Equation 8: the mean of f(x) (w v + b + c - log x)^2, f(x) = min(1, (x / X_MAX)^ALPHA)."""
    word, context, times = batch
    weight = (times / X_MAX).pow(ALPHA).clamp(max=1.0)
    error: Tensor = model(word, context) - times.log()
    return (weight * error.square()).mean()


def evaluate(model: nn.Module) -> dict[str, float]:
    every = [column[:: max(1, len(column) // 100_000)] for column in cooccurrences()]
    return {"cost": float(loss(model, every).detach())}


def nearest(vectors: Tensor, to: Tensor, count: int, but: list[int]) -> list[int]:
    """The `count` words whose vectors are most similar to the vector `to`, without the words `but`."""
    similar = vectors @ to
    similar[but] = -2.0
    return similar.topk(count).indices.tolist()


def main(run: str) -> None:
    import samovar

    known, _ = words()
    vectors = samovar.load(model(), run).vectors()
    for word in known[50:1000:95]:
        own = known.index(word)
        print(f"{word:>12}:", " ".join(known[one] for one in nearest(vectors, vectors[own], 20, [own])))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv.pop(1))
