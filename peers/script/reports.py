"""The reports of a script to its run: the losses of its batches, their samples, and metrics of its own."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from ..records.metrics import Measured, fault, numbers_of, scales_told
from ..records.records import ExchangeRecord, Record


class Losses:
    """The training losses that a script reports, batch by batch. `mean`: mean loss of the latest round that had a
    finite one; NaN before the first."""

    def __init__(self) -> None:
        self.mean = math.nan
        self._sum: float | Tensor = 0.0
        self._count = 0

    def add(self, loss: float | Tensor) -> None:
        """Add the loss of a batch, a number or a scalar tensor, whose value is not waited for."""
        self._sum = self._sum + (loss.detach().float() if isinstance(loss, Tensor) else float(loss))
        self._count += 1

    def so_far(self) -> float:
        """The mean loss of the present round so far. If it is not finite, or no loss was reported, the last finite
        mean, NaN if there was none. Waits for the device that has the losses."""
        if self._count and math.isfinite(mean := float(self._sum) / self._count):
            self.mean = mean
        return self.mean

    def begin(self) -> None:
        """Begin a round: forget the losses of the round before, but keep `mean`."""
        self._sum, self._count = 0.0, 0


@dataclass(frozen=True, slots=True)
class _Report:
    """Metrics of the script's model `steps` local steps after exchange number `at`; `last`: with which it leaves."""

    metrics: Mapping[str, float]
    at: int
    steps: int
    last: bool


class Reports:
    """The reports of a script's thread for the next record, which the event loop's thread writes: `losses` of the
    batches; `weight`: the number of samples in a batch; and metrics."""

    def __init__(self) -> None:
        self.losses, self.weight = Losses(), 1.0
        self._declared: Mapping[str, str] | None = None
        self._next: deque[_Report] = deque(maxlen=1)
        """The metrics that wait for the next record; a deque, because two threads share it."""
        self._version = 0
        """Number of the last exchange with a record."""
        self._no_record = "the records begin with run.wrap: call run.metrics after it"
        """Why a metric could not be recorded now; "": it can."""

    def weigh(self, samples: float) -> None:
        """Set the number of samples in a batch. Raises ValueError unless it is positive and finite."""
        if not 0 < samples < math.inf:
            raise ValueError(f"run.samples takes the number of samples in a batch, got {samples}")
        self.weight = float(samples)

    def begin(self, declared: Mapping[str, str] | None) -> None:
        """Accept metrics from now on. `declared`: scales of the metrics, by name, as a task's METRICS; None: none were
        declared. Raises ValueError when they are no scales."""
        if declared is not None and (wrong := fault(declared)):
            raise ValueError(f"run.wrap: metrics must be {wrong}")
        self._declared, self._no_record = declared, ""

    def measure(self, measured: Measured, steps: int, *, last: bool = False) -> None:
        """Keep metrics for the next record, in place of those that wait for it. `steps`: local steps of the measured
        model since the last exchange; `last`: the script leaves with this model. Raises ValueError for others than the
        declared ones, before `begin` and after `end`."""
        if self._no_record:
            raise ValueError(self._no_record)
        metrics = numbers_of(measured, self._declared, "run.metrics was given")
        self._next.append(_Report(metrics, self._version, steps, last))

    def noting(self, write: Callable[[Record], None]) -> Callable[[Record], None]:
        """A function that writes a record by `write`. It adds the metrics that wait to the next record of an exchange,
        after which they no longer wait."""

        def note(record: Record) -> None:
            if isinstance(record, ExchangeRecord):
                self._version = record.version
                if self._next:
                    record = self._with(self._next.pop(), record)
            write(record)

        return note

    def _with(self, report: _Report, record: ExchangeRecord) -> ExchangeRecord:
        return replace(
            record,
            metrics=report.metrics,
            metric_scales=scales_told(report.metrics, self._declared or {}),
            metrics_at=report.at,
            metrics_steps=report.steps,
        )

    def unrecorded(self) -> dict[str, Mapping[str, float] | Mapping[str, str] | bool]:
        """Take the metrics that no exchange has followed ("metrics"; empty: none), their scales ("scales"), and whether
        they are of the model with which the script leaves ("last"), for the launcher's result."""
        report = self._next.pop() if self._next else _Report({}, 0, 0, last=False)
        scales = scales_told(report.metrics, self._declared or {})
        return {"metrics": report.metrics, "scales": scales, "last": report.last}

    def end(self) -> None:
        """Refuse metrics from now on: the script has left, and there are no more records."""
        self._no_record = "the run is left: run.leave(measure) reports what measure() returns of the last model"
