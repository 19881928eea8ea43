"""The images that benchmarks train on: Debian's package dataset-fashion-mnist; without it, scikit-learn's digits."""

from __future__ import annotations

import gzip
from pathlib import Path

import torch
from torch import Tensor

FASHION = Path("/usr/share/datasets/fashion-mnist")
FILES = ["train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"]

Data = tuple[Tensor, Tensor, Tensor, Tensor]
"""Images [n, pixels] and labels [n] to train on, the same to judge by."""


def read_idx(path: Path) -> Tensor:
    data = bytearray(gzip.decompress(path.read_bytes()))
    dimensions = [int.from_bytes(data[at : at + 4], "big") for at in range(4, 4 + 4 * data[3], 4)]
    return torch.frombuffer(data, dtype=torch.uint8, offset=4 + 4 * data[3]).view(dimensions)


def load() -> tuple[str, Data]:
    try:
        loaded = [read_idx(FASHION / f"{kind}-ubyte.gz") for kind in FILES]
    except FileNotFoundError:
        print("Fashion-MNIST is not installed (apt-get install dataset-fashion-mnist): scikit-learn's digits instead")
        from sklearn.datasets import load_digits

        digits = load_digits()
        images, labels = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
        return "digits", (images[400:], labels[400:], images[:400], labels[:400])
    images, labels, test_images, test_labels = loaded
    flat = [(pixels.flatten(1) / 255 - 0.2860) / 0.3530 for pixels in (images, test_images)]
    return "Fashion-MNIST", (flat[0], labels.long(), flat[1], test_labels.long())
