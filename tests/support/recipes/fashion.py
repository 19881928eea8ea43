"""Fashion-MNIST (Xiao, Rasul and Vollgraf, arXiv 1708.07747), as Debian's package dataset-fashion-mnist has it."""

import runpy
from functools import lru_cache
from itertools import chain, islice, repeat
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, Subset, TensorDataset

BATCH = 32
IMAGES = runpy.run_path(str(Path(__file__).parents[3] / "benchmarks/_images.py"))
FOLDER = IMAGES["FASHION"]


@lru_cache
def images(kind):
    pixels, labels = (IMAGES["read_idx"](FOLDER / f"{kind}-{what}-ubyte.gz") for what in ("images-idx3", "labels-idx1"))
    return TensorDataset((pixels[:, None] / 255 - 0.2860) / 0.3530, labels.long())


def data(part, parts, workers=0):
    everything = images("train")
    mine = Subset(everything, range(part, len(everything), parts))
    return DataLoader(mine, batch_size=BATCH, shuffle=True, drop_last=True, num_workers=workers)


def epochs(loader, steps):
    """The batches of `steps` local steps, epoch after epoch."""
    return islice(chain.from_iterable(repeat(loader)), steps)


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


@torch.no_grad()
def evaluate(model):
    inputs, labels = images("t10k").tensors
    guesses = torch.cat([model(some).argmax(1) for some in inputs.split(500)])
    return (guesses == labels).float().mean()
