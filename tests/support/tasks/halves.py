"""The regression of `union`, computed in bfloat16, with the schedule of `scheduled` and two batches a step."""

from scheduled import lr_schedule
from union import data, loss, model, optimizer

__all__ = ["accumulate", "data", "loss", "lr_schedule", "model", "optimizer", "precision"]

accumulate, precision = 2, "bf16"
