"""The regression of `union`, whose local steps take two batches each, and a gradient of a bounded norm."""

from union import data, loss, model, optimizer

__all__ = ["accumulate", "clip", "data", "loss", "model", "optimizer"]

accumulate, clip = 2, 0.5
