"""The final table and the tally behind it: the numbers of the run, its peers, and the lost ones."""

from __future__ import annotations

import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from boards import committed, drawn
from synthetic import in_memory

from samovar.aggregation.goals import parse_goal
from samovar.peers.cli.final_table import final_table, headline
from samovar.peers.cli.live_table import SLOWEST
from samovar.peers.launch.run_folder import conclude
from samovar.peers.records.ends import why_over
from samovar.peers.records.event_names import EventName
from samovar.peers.records.losses import with_known
from samovar.peers.records.metrics import numbers_of, scale_of
from samovar.peers.records.records import EventRecord, ExchangeRecord, read_record
from samovar.peers.records.result import Best, Lost, PeerSummary, Result
from samovar.peers.records.tally import Tally, told_by
from samovar.peers.records.units import (
    bytes_text,
    clock_text,
    loss_text,
    metric_text,
    moment_text,
    plain,
    seconds_text,
    span_text,
)
from samovar.peers.report.headline import ending
from samovar.protocols.conversation import End


def test_metrics_of_peers_with_models_of_their_own_name_the_peer_that_told_them() -> None:
    one, other = committed("a", 1, metrics={"m": math.nan, "n": 1.0}), committed("b", 1, metrics={"m": math.nan})
    assert Tally([one, other]).metrics_of == "", "one model"
    better = committed("b", 1, metrics={"m": 0.5})
    assert Tally([one, better]).metrics_of == "b"
    later = committed("c", 2, metrics={"m": 0.6})
    tally = Tally([one, better, later])
    assert (tally.metrics, tally.metrics_of, tally.metrics_at) == ({"m": 0.6}, "c", 2)
    own = [dataclasses.replace(one, own_model=True) for one in (one, other)]
    assert [Tally(own[:count]).metrics_of for count in (1, 2)] == ["a", "b"], "whoever else has measured"
    result = Result(metrics={"m": 0.6}, metrics_of="c", loss=1.0, wall_s=1.0, exchanges=2, run="runs/x")
    assert re.search(r"m 0\.6000 +of peer c's model ", drawn(final_table(result)))


def test_the_last_metrics_of_a_model_of_its_own_name_its_peer_and_that_peers_last_exchange(tmp_path: Path) -> None:
    metrics = {"m": 0.5}
    assert told_by([("a", metrics)], own_models=False) == told_by([("a", metrics)] * 2, own_models=False) == ""
    assert told_by([("a", metrics), ("b", metrics)], own_models=True) == "b"
    heard = Tally([committed("a", 9, own_model=True), committed("b", 7, own_model=True)])
    assert heard.own_models
    result = conclude(tmp_path, heard, wall_s=1.0, measured=[("b", metrics)])
    assert (result.metrics, result.metrics_of, result.metrics_at) == (metrics, "b", 7)
    one_model = Tally([committed("a", 9), committed("b", 7)])
    result = conclude(tmp_path, one_model, wall_s=1.0, measured=[("b", metrics)])
    assert (result.metrics, result.metrics_of, result.metrics_at) == (metrics, "", 9)


def test_a_newcomers_result_tells_how_many_of_the_runs_exchanges_it_was_in() -> None:
    newcomer = dataclasses.replace(summary_of("late"), exchanges=33)
    result = Result(loss=1.0, wall_s=1.0, exchanges=113, peers=(newcomer,), run="runs/x")
    assert "113 rounds, 33 of them here" in drawn(final_table(result))
    assert "here" not in drawn(final_table(dataclasses.replace(result, exchanges=33)))


@pytest.mark.parametrize(("kept", "said"), [(0.95, "best accuracy 95"), (0.7, "best kept accuracy 70")])
def test_a_kept_model_that_is_worse_than_the_last_one_is_not_called_the_best(kept: float, said: str) -> None:
    best = Best(metric="accuracy", value=kept, at=1, file="best.safetensors")
    made: dict[str, Any] = {"metrics": {"accuracy": 0.9}, "metric_scales": {"accuracy": "higher %"}, "exchanges": 4}
    (told,) = [one for one in headline(Result(**made, loss=0.1, wall_s=1.0, run="run", best=best)) if "best" in one]
    assert told.startswith(said)
    assert told.endswith(" after round 1")


def test_the_best_model_of_a_peer_s_own_names_that_peer() -> None:
    best = Best(metric="m", value=0.95, at=3, file="best.safetensors", of="2")
    result = Result(metrics={"m": 0.9}, metrics_of="0", best=best, loss=1.0, wall_s=1.0, exchanges=4, run="runs/x")
    assert re.search(
        r"m 0\.9000 +of peer 0's model +best m 0\.9500 of peer 2's model after round 3 ", drawn(final_table(result))
    )


@pytest.mark.parametrize(
    ("by", "last", "told"),
    [
        ("steps", 0.7, "ended: the run has come to local step 1,200; the goal rmse <= 0.5 was not reached"),
        ("samples", 0.7, "ended: enough samples; the goal rmse <= 0.5 was not reached"),
        ("steps", 0.4, ""),  # by the last model, which is evaluated after the end
        ("stop", 0.7, "ended: rmse 0.4 in round 3, and the goal is rmse <= 0.5"),
        (None, 0.7, ""),
    ],
)
def test_a_goal_that_was_not_reached_is_told_with_why_the_run_ended(
    tmp_path: Path, by: str | None, last: float, told: str
) -> None:
    why = {"samples": "enough samples", "stop": "rmse 0.4 in round 3, and the goal is rmse <= 0.5"}
    end = None if by is None else End.by_steps(1200, 1200) if by == "steps" else End(by, why[by])
    tally = Tally([committed("a", 3)])
    result = conclude(
        tmp_path, tally, wall_s=1.0, measured=[("0", {"rmse": last})], end=end, goal=parse_goal("rmse <= 0.5")
    )
    assert [text for text in headline(result) if text.startswith("ended")] == [told] * bool(told)
    seen = ending(dataclasses.replace(in_memory({}), result=result))
    assert ("not reached" in seen) == ("not reached" in told)
    assert ("Ended: " in seen) == (by is not None)


def test_a_reason_of_the_end_that_is_longer_than_a_line_is_broken_between_words() -> None:
    why = "the run has come to local step 700"
    result = Result(
        ended_by="steps", ended_why=why, missed="exact >= 99.8%", loss=1.0, wall_s=1.0, exchanges=4, run="x"
    )
    text = drawn(final_table(result), 80)
    assert max(map(len, text.splitlines())) <= 80
    assert f"ended: {why}; the goal exact >= 99.8% was not reached" in " ".join(text.split())


@pytest.mark.parametrize(
    ("finished", "script", "role", "why", "shown"),
    [
        (False, False, "", "stopped by its user", True),
        (False, True, "", "stopped by its user", True),
        (True, True, "", "its scripts have ended", False),
        (True, False, "server", "its workers have finished", False),
        (True, False, "", "", False),
    ],
)
def test_a_result_says_why_a_run_is_over_that_no_setting_has_ended(
    tmp_path: Path, finished: bool, script: bool, role: str, why: str, shown: bool
) -> None:
    told = why_over(finished=finished, script=script, role=role)
    result = conclude(tmp_path, Tally([committed("a", 3)]), wall_s=1.0, why=told)
    assert (result.ended_by, result.ended_why) == (None, why)
    assert (why in headline(result)) == shown
    assert conclude(tmp_path, Tally(), wall_s=1.0, end=End("samples", "enough"), why=told).ended_why == "enough"


def test_a_result_of_servers_alone_tells_no_loss() -> None:
    servers = tuple(dataclasses.replace(summary_of(name), role="server", loss=math.nan) for name in ("2", "3"))
    result = Result(loss=math.nan, wall_s=1.0, exchanges=9, peers=servers, run="runs/x")
    assert "loss -" not in drawn(final_table(result))
    assert "loss -" in drawn(final_table(dataclasses.replace(result, peers=(*servers, summary_of("0")))))


def test_the_final_table_tells_the_numbers_the_peers_and_the_lost() -> None:
    def summary(index: int) -> PeerSummary:
        return PeerSummary(
            peer=f"p{index}",
            steps=1000 + index,
            exchanges=50,
            bytes_sent=2_000_000,
            bytes_received=1_000_000,
            compute_s=30.0,
            wait_s=4.0,
            transfer_s=2.0,
            loss=0.1,
        )

    result = Result(
        metrics={"accuracy": 0.9731},
        loss=0.0842,
        wall_s=75,
        exchanges=50,
        peers=tuple(map(summary, range(3))),
        lost=(Lost(peer="p1", when=42.0, why="no heartbeat for 5 s"),),
        run="runs/digits-001",
    )
    text = drawn(final_table(result))
    for part in (
        "accuracy 97.31%",
        "loss 0.08420",
        "50 rounds",
        "3 peers on this machine, 1 lost",
        "1 min 15 s",
        "all 3",
        "6.00 MB",
    ):
        assert part in text
    assert "lost p1 at 42.0 s: no heartbeat for 5 s" in text
    assert "shared" not in text
    together = [dataclasses.replace(summary(index), bytes_shared=7_000_000) for index in range(3)]
    shared = drawn(final_table(dataclasses.replace(result, peers=tuple(together))))
    assert "shared" in shared
    assert "21.0 MB" in shared
    assert "hidden" not in text
    overlapped = [dataclasses.replace(summary(index), hidden_s=70.0) for index in range(3)]
    hidden = drawn(final_table(dataclasses.replace(result, peers=tuple(overlapped))))
    assert "hidden" in hidden
    assert "3 min 30 s" in hidden
    assert "virtual" not in text
    many = dataclasses.replace(result, peers=tuple(map(summary, range(64))), virtual_s=7200.0)
    text = drawn(final_table(many))
    assert "2 h 0 min of virtual time" in text
    assert sum(line.startswith("p") for line in text.splitlines()) == SLOWEST + 1  # and the heading
    assert f"+ {64 - SLOWEST} more" in text
    assert "more" not in drawn(final_table(result))


def test_servers_are_counted_and_named_as_servers_and_have_no_cells_of_steps() -> None:
    started = [EventRecord(peer=name, time_s=0.0, event="started", role="server" * (name == "2")) for name in "012"]
    records = [*started, committed("0", 1), committed("1", 1), committed("2", 1, step=0, compute_s=0.0, loss=math.nan)]
    peers = tuple(Tally(records).peers.values())
    assert [peer.role for peer in peers] == ["", "", "server"]
    result = Result(loss=2.0, wall_s=1.0, exchanges=1, peers=peers, run="runs/ps-001")
    text = drawn(final_table(result))
    assert "2 workers, 1 server on this machine" in text
    (server,) = (line.split() for line in text.splitlines() if line.startswith("2 "))
    assert server == ["2", "(server)", "-", "-", "1.50", "MB", "250", "kB", "-", "-", "-", "-"]


def summary_of(peer: str) -> PeerSummary:
    return PeerSummary(
        peer=peer,
        steps=1_234_567,
        exchanges=98_765,
        bytes_sent=2_340_000,
        bytes_received=1_230_000_000,
        bytes_shared=79_200_000,
        compute_s=1000.7,
        wait_s=5.67,
        transfer_s=0.123,
        hidden_s=45.6,
        loss=0.4043,
    )


NUMBERS = (
    "98,765",
    "1,234,567",
    "2.34 MB",
    "1.23 GB",
    "79.2 MB",
    "16 min 41 s",
    "5.67 s",
    "123 ms",
    "45.6 s",
    "0.4043",
)


@pytest.mark.parametrize("width", [80, 60, 52])
@pytest.mark.parametrize("letters", [1, 64])
def test_the_final_table_of_a_narrow_terminal_has_every_digit_and_unit(letters: int, width: int) -> None:
    names = [str(index) * letters for index in range(4)]
    result = Result(
        metrics={"accuracy": 0.9},
        loss=0.4,
        wall_s=75,
        exchanges=9,
        peers=tuple(map(summary_of, names)),
        lost=(),
        run="x",
    )
    text = drawn(final_table(result), width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    for name in names:
        rows = [re.split(r" {2,}", line.rstrip()) for line in text.splitlines() if line.startswith(name[:8])]
        assert [cell for row in rows for cell in row[1:]] == list(NUMBERS), text
    assert "4 peers on this machine" in text, "no phrase is broken"
    wide = drawn(final_table(result), 200)
    assert wide == drawn(final_table(result), 300), "what fits is one table"
    assert wide.count("peer ") == 1


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (bytes_text(0), "0 B"),
        (bytes_text(999), "999 B"),
        (bytes_text(999.9), "1.00 kB"),
        (bytes_text(1_234_567), "1.23 MB"),
        (bytes_text(5e15), "5000 TB"),
        (seconds_text(0), "0 s"),
        (seconds_text(0.0123), "12.3 ms"),
        (seconds_text(59.99), "1 min 0 s"),
        (seconds_text(7300), "2 h 1 min"),
        (clock_text(75), "1:15"),
        (clock_text(7300), "2:01:40"),
        (moment_text(9.514), "9.51 s"),
        (moment_text(59.99), "0:59"),
        (loss_text(0.145), "0.1450"),
        (metric_text(4.0, scale_of("n", {"n": "lower patients"})), "4.000 patients"),
        (metric_text(4.25, scale_of("n", {"n": "lower patients"})), "4.250 patients"),
        (metric_text(1.0, scale_of("AUC", {})), "1.000"),
        (metric_text(4, scale_of("n", {"n": "lower patients"})), "4 patients"),
        (metric_text(12_345, scale_of("n", {})), "12,345"),
        (metric_text(1, scale_of("accuracy", {})), "100.00%"),
        (loss_text(2300.0), "2300"),
        (loss_text(math.inf), "not finite"),
        (loss_text(math.nan), "-"),
        (plain("a\x1bb\u202ec"), "a\ufffdb\ufffdc"),
        (plain("x" * 300, 10), "xxxxxxxxx…"),
    ],
)
def test_numbers_and_names_read_well(shown: str, text: str) -> None:
    assert shown == text


@pytest.mark.parametrize(("since_s", "until_s", "text"), [(0.0, 9.31, "0 s to 9.31 s"), (52.1, 62.0, "0:52 to 1:02")])
def test_both_ends_of_a_span_of_time_have_one_form(since_s: float, until_s: float, text: str) -> None:
    assert span_text(since_s, until_s) == text


def test_a_peer_was_lost_when_it_was_first_seen_to_be() -> None:
    seen = [
        EventRecord(peer=f"{s}", time_s=s, event="lost", about="carl", why=f"silent at {s:g}") for s in (3.0, 2.0, 4.0)
    ]
    assert Tally(seen).lost == (Lost(peer="carl", when=2.0, why="silent at 2"),)


def test_a_metric_that_a_task_gives_as_an_integer_is_one_in_its_record() -> None:
    told = numbers_of({"n": torch.tensor(4), "m": np.int64(5), "o": 6, "p": 7.0, "q": True, "r": 10**30}, None, "")
    read = read_record(committed("a", 1, metrics=told).to_json())
    assert isinstance(read, ExchangeRecord)
    assert [repr(value) for value in read.metrics.values()] == ["4", "5", "6", "7.0", "1.0", "1e+30"]


def happened(event: EventName, time_s: float, generation: int, about: str = "", peer: str = "a") -> EventRecord:
    return EventRecord(peer=peer, time_s=time_s, event=event, about=about, generation=generation, why=f"at {time_s:g}")


def test_a_lost_peer_that_came_back_is_told_as_back() -> None:
    lost = [happened("lost", 2.0, 2, "b"), happened("lost", 2.5, 2, "b", "c")]
    assert Tally([*lost, happened("joined", 4.0, 3, "b")]).lost == (Lost(peer="b", when=2.0, why="at 2", back=True),)
    own = happened("joined", 4.0, 3, peer="b")
    assert Tally([*lost, own]).lost[0].back
    again = [
        *lost,
        own,
        happened("joined", 4.0, 3, "b"),
        happened("lost", 6.0, 4, "b"),
        happened("lost", 6.5, 4, "b", "c"),
    ]
    assert Tally(again).lost == (Lost(peer="b", when=6.0, why="at 6"),), "it is lost anew"
    late = [*lost, happened("lost", 4.0, 3, "b", "d"), happened("joined", 4.0, 3, "b", "d")]
    assert Tally(late).lost[0].back, "d tells in one view that b was lost, and is back"
    away = [happened(event, at, 3, "b") for event, at in (("lost", 2.0), ("back", 4.0), ("lost", 6.0))]
    assert Tally(away).lost == (Lost(peer="b", when=6.0, why="at 6"),), "too few were left for another view"
    assert not Tally([happened("joined", 1.0, 1, "b"), *lost]).lost[0].back
    result = Result(loss=1.0, wall_s=1.0, exchanges=1, run="runs/x", lost=(*Tally(late).lost, *Tally(again).lost))
    text = drawn(final_table(result))
    assert "2 lost, 1 of them back" in text
    assert "lost b at 2.00 s, and back: at 2" in text
    assert "lost b at 6.00 s: at 6" in text


def test_the_end_of_a_lost_peers_process_is_when_it_was_lost() -> None:
    told = (Lost(peer="b", when=11.4, why="silent"), Lost(peer="c", when=3.0, why="silent", back=True))
    ends = [Lost(peer=peer, when=when, why="killed") for peer, when in (("b", 1.5), ("c", 9.0), ("d", 5.0))]
    assert with_known(told, ends) == (ends[0], ends[1], ends[2])
    later = dataclasses.replace(ends[0], when=12.0)
    assert with_known(told[:1], [later]) == (Lost(peer="b", when=11.4, why="killed"),)
    assert with_known(told, []) == (told[1], told[0])


def test_a_round_that_was_fetched_from_others_is_none_that_a_peer_computed() -> None:
    records = [committed("anna", 1), committed("anna", 5, caught_up=True, loss=math.nan), committed("anna", 6)]
    anna = Tally(records).peers["anna"]
    assert (anna.exchanges, anna.loss) == (2, 2.0 / 6)


def test_a_peer_was_lost_when_the_first_peer_noticed_and_a_fetched_result_is_not_averaged_by_it() -> None:
    when_s = (7.0, 5.0, 6.0)
    lost = [EventRecord(peer=f"{index}", time_s=s, event="lost", about="9") for index, s in enumerate(when_s)]
    tally = Tally([committed("0", 1), committed("0", 2, caught_up=True), committed("0", 3), *lost])
    assert [one.when for one in tally.lost] == [5.0]
    assert tally.peers["0"].exchanges == 2
