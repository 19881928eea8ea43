"""The task of union.py, whose layer is as wide as its command line says."""

import argparse

from torch import nn
from union import data, loss, optimizer

__all__ = ["data", "loss", "model", "optimizer"]

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=5)
options = parser.parse_args()


def model():
    assert parser.parse_args() == options, "its functions see the arguments, too"
    return nn.Sequential(nn.Linear(6, options.width), nn.Tanh(), nn.Linear(options.width, 1))
