"""The task of union.py, whose layer is as wide as its command line says, with local steps of at least 1 ms: a run that
goes on while a test does something else leaves it the processors."""

import argparse
import time

from torch import nn
from union import data, optimizer
from union import loss as usual

__all__ = ["data", "loss", "model", "optimizer"]

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=5)
options = parser.parse_args()


def loss(model, batch):
    time.sleep(0.001)
    return usual(model, batch)


def model():
    assert parser.parse_args() == options, "its functions see the arguments, too"
    return nn.Sequential(nn.Linear(6, options.width), nn.Tanh(), nn.Linear(options.width, 1))
