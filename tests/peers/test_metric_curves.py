"""The curves of metrics tell whose evaluations their points are, and after which exchange these were made."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

import pytest
from boards import committed
from synthetic import in_memory
from test_report import Page

from samovar.peers.records.records import ExchangeRecord
from samovar.peers.records.run import Run
from samovar.peers.report.charts import TITLE_LETTERS
from samovar.peers.report.curves import averaged, measured
from samovar.peers.report.plot import plotted
from samovar.peers.report.write import page

SERVED, GOSSIP = {"updates": 1.0}, {"neighbours": 1.0}


def run_of(*records: ExchangeRecord) -> Run:
    files: dict[str, list[Any]] = {}
    for record in sorted(records, key=lambda one: one.time_s):
        files.setdefault(record.peer, []).append(record)
    return dataclasses.replace(in_memory(files), columns=dict.fromkeys(records[0].details, ""))


def told(
    peer: str, number: int, at_s: float, value: float | None, details: Mapping[str, float], *, own: bool = False
) -> ExchangeRecord:
    metrics = {} if value is None else {"rmse": value}
    return committed(peer, number, time_s=at_s, metrics=metrics, details=details, own_model=own)


def hovers(run: Run, name: str = "rmse") -> list[str]:
    """The texts at the points of a metric's curve over time, without the bytes."""
    (line,) = Page(page(run, "")).figures[f"{name}-time"]["data"]
    return [re.sub("<.*?>", " ", text).rpartition(" · ")[0].strip() for text in line["customdata"]]


def served() -> Run:
    """Of three workers, the first of which evaluates now and then, and each the last model."""
    evaluated = {("0", 5): 1.5, ("0", 10): 1.0}
    records = [
        told(peer, number, number + 0.3 * int(peer), evaluated.get((peer, number)), SERVED)
        for peer in "012"
        for number in range(1, 13)
    ]
    last = [told(peer, 13, 13.5 + 0.1 * int(peer), 0.5, SERVED) for peer in "012"]
    return run_of(*records, *last)


def test_each_evaluation_of_the_one_model_is_a_point_with_its_exchange_and_its_peer() -> None:
    run = served()
    points = measured(run, "rmse")
    assert [(one.version, one.time_s, one.value) for one in points] == [
        (5, 5.0, 1.5), (10, 10.0, 1.0), (13, 13.5, 0.5), (13, 13.6, 0.5), (13, 13.7, 0.5),
    ]  # fmt: skip
    assert averaged(points) == []
    assert plotted(run, ["rmse"]).layout.yaxis.title.text == "rmse"
    assert hovers(run)[:2] == ["1.500  exchange 5 of peer 0 · 5.00 s", "1.000  exchange 10 of peer 0 · 10.0 s"]
    assert "mean of the evaluations" not in Page(page(run, "")).seen


def test_a_curve_of_what_scripts_told_differently_of_a_round_says_that_it_is_a_mean() -> None:
    rounds, values = {"round": 1.0}, {("0", 1): 3.0, ("1", 1): 4.0, ("1", 2): 2.5}
    run = run_of(
        *(told(who, number, number + 0.1 * int(who), value, rounds) for (who, number), value in values.items())
    )
    assert plotted(run, ["rmse"]).layout.yaxis.title.text == "rmse, mean of 2 peers"
    assert hovers(run) == ["3.500  round 1 of peers 0, 1 · 1.10 s", "2.500  round 2 of peer 1 · 2.10 s"]
    assert "mean of the evaluations of that round, by peers 0, 1." in Page(page(run, "")).seen
    alike = run_of(*(dataclasses.replace(one, metrics={"rmse": 2.0}) for one in run.exchanges))
    assert plotted(alike, ["rmse"]).layout.yaxis.title.text == "rmse", "one model"
    assert hovers(alike) == ["2.000  round 1 · 1.10 s", "2.000  round 2 · 2.10 s"]


def test_a_script_s_evaluation_is_at_the_exchange_that_gave_its_model() -> None:
    """Of the initial model, of that of round 2, and of one amid round 4: the records of the next rounds tell them."""
    rounds, reports = {"round": 1.0}, {1: (4.0, 0, 0), 3: (3.0, 2, 0), 4: (2.5, 3, 7)}
    records = [told("0", number, float(number), None, rounds) for number in range(1, 5)]
    for number, (value, at, steps) in reports.items():
        measured_of = {"metrics": {"rmse": value}, "metrics_at": at, "metrics_steps": steps}
        records[number - 1] = dataclasses.replace(records[number - 1], **measured_of)
    points = measured(run_of(*records), "rmse")
    assert [(one.version, one.time_s, one.value) for one in points] == [(0, 0.0, 4.0), (2, 2.0, 3.0), (3, 3.0, 2.5)]
    assert [one.bytes_sent for one in points] == [0, *(sum(one.bytes_sent for one in records[:n]) for n in (2, 3))]
    assert hovers(run_of(*records))[1] == "3.000  round 2 · 2.00 s"


def gossip(*slowness: float) -> Run:
    """Of peers that evaluate their own models after every fifth of 20 exchanges, which take these seconds each."""
    return run_of(
        *(
            told(str(peer), number, slow_s * number, None if number % 5 else number + 0.1 * peer, GOSSIP, own=True)
            for peer, slow_s in enumerate(slowness)
            for number in range(1, 21)
        )
    )


def test_models_of_peers_in_step_are_put_together_by_the_exchange_after_which_they_were_evaluated() -> None:
    run = gossip(1.0, 1.01, 1.02)
    points = measured(run, "rmse")
    assert [(one.first, one.version, one.peers) for one in points] == [
        (at, at, ("0", "1", "2")) for at in (5, 10, 15, 20)
    ]
    assert hovers(run)[0] == "5.100  exchange 5 of peers 0, 1, 2 · 5.10 s"
    assert averaged(points) == ["0", "1", "2"]


def test_models_of_peers_that_are_not_in_step_are_put_together_by_time() -> None:
    points = measured(run := gossip(1.0, 2.5), "rmse")
    times = [point.time_s for point in points]
    assert times == sorted(times)
    assert all(point.first in (5, 10, 15, 20) for point in points), "no exchange that nobody evaluated"
    assert any(point.first < point.version for point in points)
    assert any("exchanges 5 to 10 of peers 0, 1" in text for text in hovers(run))


@pytest.mark.parametrize("name", ["cross entropy", "a metric with a name of quite many words"])
def test_no_title_of_an_axis_is_longer_than_its_chart_is_high(name: str) -> None:
    records = [one for one in gossip(1.0, 1.1).exchanges if one.metrics]
    named = [
        dataclasses.replace(one, metrics={name: one.metrics["rmse"]}, metric_scales={name: "lower nats"})
        for one in records
    ]
    title = plotted(run_of(*named), [name]).layout.yaxis.title.text
    lines = title.split("<br>")
    assert lines[-1] == "mean of 2 peers"
    assert max(map(len, lines)) <= TITLE_LETTERS
