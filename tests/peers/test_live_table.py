"""The live table: a row of each peer, in which no text of a peer and no narrow terminal breaks anything."""

from __future__ import annotations

import dataclasses
import io
import math
import re

import pytest
from boards import Clock, board, committed, drawn, happened, row
from rich.console import Console

from samovar.peers.cli.final_table import final_table
from samovar.peers.cli.live_table import MOST_ROWS, SLOWEST, Board
from samovar.peers.cli.progress import Progress
from samovar.peers.records.columns import KNOWN
from samovar.peers.records.records import EventRecord, Missing
from samovar.peers.records.result import Lost, PeerSummary, Result


def test_a_row_tells_state_speed_steps_loss_period_bytes_and_the_last_event() -> None:
    found = board(happened("alice", "started"), committed("alice", 1))
    found.headline(50)
    found.update(committed("alice", 2, metrics={"accuracy": 0.5}))
    found.update(happened("alice", "checkpoint", why="step 20"))
    text = drawn(found.render(75, 120))
    for part in ("training", "12.5", "20 of 100", "1.000", "10", "3.00 MB", "500 kB", "checkpoint: step 20"):
        assert part in row(text, "alice")
    for part in ("1:15", "round 2", "loss 1.000", "accuracy 50.00%", "3 peers", "about 3 min 20 s left"):
        assert part in text.splitlines()[0]


def test_peers_that_have_gathered_train_although_no_round_is_over() -> None:
    found = board()
    assert "getting together" in found.headline(1)
    found.update(happened("alice", "started"))
    assert "in the first round   1 peer" in found.headline(30)
    assert "training" in row(drawn(found.render(30, 120)), "alice")
    found.update(committed("alice", 1))
    assert "first" not in found.headline(40)
    late = board(happened("bob", "joined"))
    assert "first" not in late.headline(1), "the run is in a later one"


def test_a_newcomer_joins_a_running_run_and_gathers_nobody() -> None:
    found = board()
    found.joins()
    assert "joining the run" in found.headline(1)
    found.update(happened("bob", "joined"))
    assert "joined a running run, catching up" in found.headline(2)
    assert re.fullmatch(r"bob +catching up( +-)+ +joined *", row(drawn(found.render(2, 120)), "bob"))
    found.update(committed("bob", 7))
    assert "round 7" in found.headline(3)
    assert "training" in row(drawn(found.render(3, 120)), "bob")
    first = board()
    first.joins()
    first.update(happened("bob", "started"))
    assert "in the first round" in first.headline(1), "the run began when it came"


@pytest.mark.parametrize("count", [3, MOST_ROWS + 2])
def test_a_server_serves_and_has_no_cells_of_steps(count: int) -> None:
    workers = [f"w{index}" for index in range(count - 1)]
    found = board(*(happened(name, "started") for name in workers), happened("s", "started", role="server"))
    found.update(committed("s", 1, step=0, steps_per_s=0.0, loss=math.nan))
    for name in workers:
        found.update(committed(name, 1))
    assert f"{count - 1} workers, 1 server" in found.headline(1)
    text = drawn(found.render(1, 120))
    if count == 3:
        assert re.fullmatch(r"s +serving +- +- +- +10 +1\.50 MB +250 kB +started *", row(text, "s"))
    else:
        assert "1 serving" in row(text, "all")
        assert not any(line.startswith("s ") for line in text.splitlines()), "a server is no slow worker"
    found.update(happened("s", "lost"))
    assert f"{count - 1} peers, 1 lost" in found.headline(1)


def test_a_server_that_a_newcomer_finds_or_that_joins_serves_too() -> None:
    found = board(happened("late", "joined"))
    found.update(happened("late", "present", about="w"))
    found.update(happened("late", "present", about="s", about_role="server"))
    found.update(happened("late", "joined", about="t", about_role="server"))
    found.update(committed("late", 7))
    assert "2 workers, 2 servers" in found.headline(1)
    shown = drawn(found.render(1, 140), 140)
    states = {name: re.split(r" {2,}", row(shown, name))[1] for name in ("late", "w", "s", "t")}
    assert states == {"late": "training", "w": "training", "s": "serving", "t": "serving"}


def test_before_a_worker_has_told_anything_the_line_counts_no_servers_alone() -> None:
    board = Board(steps=10)
    board.update(EventRecord(peer="3", time_s=0.0, event="started", role="server"))
    assert "server" not in board.headline(1.0)
    board.update(EventRecord(peer="0", time_s=0.0, event="started"))
    assert "1 worker, 1 server" in board.headline(1.0)


def test_a_server_without_a_record_yet_has_not_sent_zero_bytes() -> None:
    found = board(happened("w", "started"), happened("s", "started", role="server"), committed("w", 1))
    assert " B " not in row(drawn(found.render(1, 120)), "s")


def test_bytes_of_a_resumed_run_are_counted_from_its_beginning() -> None:
    found = board()
    before = PeerSummary(
        peer="a", steps=1, exchanges=1, bytes_sent=2_000_000, bytes_received=750_000, compute_s=0, wait_s=0,
        transfer_s=0, loss=1.0,
    )  # fmt: skip
    found.goes_on([before, dataclasses.replace(before, peer="gone")])
    found.update(happened("a", "resumed"))
    assert "2.00 MB" in row(drawn(found.render(1, 120)), "a")
    found.update(committed("a", 2))
    assert re.search(r"3\.50 MB +1\.00 MB", row(drawn(found.render(1, 120)), "a"))
    assert list(found.peers) == ["a"], "one that is not in the resumed run has no row"


def test_a_peer_that_sleeps_says_so_and_for_how_long() -> None:
    found = board(happened("a", "started"), committed("a", 1))
    why = "only 256 kB are there for now, of 5.00 MB a day; it leaves, and is back in 9 h 31 min"
    found.update(happened("a", "asleep", why=why))
    text = drawn(found.render(1, 80), 80)
    assert "asleep" in row(text, "a")
    assert " ".join(text.split()).endswith(f"asleep: {why}")
    assert "left" not in found.headline(1).replace("leaves", "")
    found.update(happened("a", "checkpoint", why="round 1"))
    assert " ".join(drawn(found.render(2, 80), 80).split()).endswith(f"asleep: {why}"), "the reason stays"
    found.update(happened("a", "awake"))
    assert "catching up" in row(drawn(found.render(1, 120)), "a")


def test_a_newcomer_that_sleeps_does_not_catch_up() -> None:
    found = board()
    found.joins()
    found.update(happened("a", "joined"))
    found.update(happened("a", "asleep", why="only 125 kB are there for now, of 1.00 MB a day"))
    assert "joined a running run   1 peer" in found.headline(1)
    found.update(happened("a", "awake"))
    assert "joined a running run, catching up" in found.headline(2)


def test_the_metric_that_ends_the_run_is_shown_beside_the_headline() -> None:
    metrics = {"nats": 2.0, "right": 0.5, "other": 3.0}
    both = committed("a", 1, metrics=metrics, metric_scales={"right": "higher %"})
    assert "right 50.00%   " in board(both, watched="right").headline(1.0)
    assert "other" not in board(both, watched="right").headline(1.0)
    assert "right" not in board(both).headline(1.0)


def test_further_metrics_are_shown_where_they_take_no_line_more() -> None:
    metrics = {"nats": 2.0, "right": 0.5, "other": 3.0}
    one = committed("a", 1, metrics=metrics, metric_scales={"right": "higher %"})
    wide, narrow = (drawn(board(one).render(1.0, width), width).splitlines()[0] for width in (120, 80))
    assert "nats 2.000   right 50.00%   other 3.000   period" in wide
    assert "nats 2.000   period" in narrow


def test_a_further_metric_that_has_been_shown_never_goes() -> None:
    one = committed("a", 1, metrics={"nats": 2.0, "right": 0.5})
    width, told = len("   ".join(board(one).phrases(1.0, 500))), board(one)
    assert "right 0.5000" in told.phrases(1.0, width)
    wider = committed("a", 2, metrics={"nats": 2.0, "right": 1e-9})
    assert "right 1.000e-09" not in board(wider).phrases(1.0, width), "one line more"
    told.update(wider)
    assert "right 1.000e-09" in told.phrases(1.0, width)


def test_the_headline_counts_those_that_have_come_until_the_run_begins() -> None:
    found = board()
    found.gathers("1 of 2 workers")
    assert "getting together: 1 of 2 workers" in found.headline(1)
    found.update(happened("a", "started"))
    found.gathers("1 of 2 workers")
    assert "in the first round" in found.headline(1), "a peer that tells of the wait late"


def test_the_peer_whose_own_model_was_evaluated_is_named() -> None:
    gossip = {"columns": {"neighbours": "Neighbours"}}
    found, served = Board(steps=100, **gossip), Board(steps=100, **gossip)
    for told in (committed("0", 3, metrics={"m": 0.5}), committed("1", 3, metrics={"m": 0.25})):
        found.update(dataclasses.replace(told, own_model=True))
        served.update(told)
    assert "m 0.2500   of peer 1's model   " in found.headline(1.0)
    found.update(committed("0", 2, metrics={"m": 0.125}, own_model=True))
    assert "m 0.2500   of peer 1's model   " in found.headline(1.0), "an older exchange"
    assert "of peer" not in served.headline(1.0), "there is one model"


def test_a_column_without_a_number_is_left_out() -> None:
    found = board(committed("a", 1, details={"round": 1, "generation": 1}))
    assert "period" not in drawn(found.render(1, 120))


def test_an_accuracy_of_an_earlier_round_says_of_which() -> None:
    told = board(dataclasses.replace(committed("alice", 1), metrics={"accuracy": 0.5}))
    assert "accuracy 50.00%   " in told.headline(1.0)
    told.update(committed("alice", 2))
    assert "accuracy 50.00% after round 1   " in told.headline(1.0)


def test_the_time_that_is_left_is_told_by_the_last_seconds() -> None:
    """A run that was fast and is slow now, as somebody slow has joined, takes as long as it does now."""
    found = board(committed("alice", 1))
    assert "left" not in found.headline(0)
    found.update(committed("alice", 5))
    assert "about 62.5 ms left" in found.headline(0.05)
    for number in range(1, 13):
        found.headline(number)
    found.update(committed("alice", 6))
    assert "about 40.0 s left" in found.headline(12)


def test_the_time_that_is_left_is_told_where_a_run_ends_by_epochs() -> None:
    found = board(committed("alice", 1, steps_left=990), steps=0)
    found.headline(0)
    found.update(committed("alice", 5, steps_left=150))
    assert "about 375 ms left" in found.headline(0.1), "150 steps at 40 in 0.1 s"
    found.update(committed("alice", 6, steps_left=None))
    assert "left" not in found.headline(0.2)


def test_a_newcomer_is_told_the_time_that_is_left_by_its_share_of_the_steps() -> None:
    found = board(happened("late", "joined"), committed("late", 90, caught_up=True), steps=1000)
    assert "left" not in found.headline(1.0)
    found.update(committed("late", 91))
    assert "about 900 ms left" in found.headline(1.1)


def test_a_lost_peer_is_shown_as_lost_and_why_and_as_training_again_once_it_is_back() -> None:
    found = board(committed("a", 1), committed("b", 1), happened("a", "lost", about="b", why="no heartbeat for 5 s"))
    assert re.search(r"lost .*lost: no heartbeat for 5 s", row(drawn(found.render(1, 120)), "b"))
    assert "2 peers, 1 lost" in found.headline(1)
    found.update(committed("b", 3, caught_up=True))
    assert "training" in row(drawn(found.render(1, 120)), "b")


def test_a_newcomer_counts_the_members_of_which_it_knows_no_name() -> None:
    found = board(happened("late", "joined"), committed("late", 7, members=4))
    assert "4 peers" in found.headline(1)
    found.update(happened("late", "lost", about="b"))
    assert "3 peers, 1 lost" in found.headline(2)
    found.update(committed("late", 8, members=3))
    assert "3 peers, 1 lost" in found.headline(3), "the lost peer is none of the three"
    found.update(happened("late", "left", about="c"))
    found.update(committed("late", 9, members=2))
    assert "2 peers, 1 lost, 1 left" in found.headline(4)
    many = board(committed("late", 7, members=3, details={KNOWN: 12, "neighbours": 2}))
    assert "12 peers" in many.headline(1), "with few of them it exchanges models"


def test_of_a_peer_from_elsewhere_no_number_is_shown_that_only_it_knows() -> None:
    found = board(committed("a", 3), committed("b", 3), happened("a", "joined", about="far"), steps=1000)
    shown = row(drawn(found.render(1, 140), 140), "far")
    assert re.split(r" {2,}", shown.strip())[:8] == ["far", "training", "-", "-", "-", "-", "-", "-"]
    assert re.split(r" {2,}", row(drawn(found.render(1, 80), 80), "far").strip())[:3] == ["far", "training", "-"]
    others = (happened("0", "joined", about=f"far{index}") for index in range(20))
    many = board(*(committed(str(index), 3) for index in range(MOST_ROWS)), *others)
    drawn_many = drawn(many.render(1, 140), 140)
    assert f" {many.peers['0'].step:,} " in row(drawn_many, "all 36"), "the median is of those that tell theirs"
    assert "far" not in drawn_many, "nobody knows whether these are the slowest"


def test_before_any_peer_is_heard_of_there_is_no_empty_table() -> None:
    assert drawn(board().render(2, 80), 80).split() == ["0:02", "getting", "together"]


def test_a_stalled_peer_is_named_in_the_line_until_it_goes_on_or_has_made_a_round() -> None:
    why = "45 s of local steps, usually 0.12 s; now in data(), step 1603"
    found = board(committed("a", 1), committed("b", 1), happened("a", "stalled", about="b", why=why))
    assert "waiting for b" in found.headline(1)
    assert "stalled: 45 s of local steps" in row(drawn(found.render(1, 140), 140), "b")
    narrow = drawn(found.render(1, 80), 80)
    assert "waiting for b" in narrow.splitlines()[0]
    assert "stalled" in row(narrow, "b")
    found.update(happened("a", "goes_on", about="b"))
    assert "waiting for" not in found.headline(1)
    for name in ("b", "c", "d", "e"):
        found.update(happened("a", "stalled", about=name, why=why))
    assert "waiting for b, c, d and 1 more" in found.headline(1)
    found.update(committed("b", 2))
    assert "waiting for c, d, e " in found.headline(1)


@pytest.mark.parametrize("width", [80, 140])
def test_a_run_with_too_few_peers_names_those_that_do_not_answer_on_any_terminal(width: int) -> None:
    why = "only 2 of 4 peers answer, laptop and office-machine not; it waits for them"
    found = board(committed("a", 1), committed("b", 1), happened("a", "waiting", why=why))
    found.update(happened("b", "waiting", why=why))
    text = drawn(found.render(1, width), width)
    assert " ".join(text.split()).endswith(f"waiting: {why}")
    assert " ".join(text.split()).count("it waits for them") == 1
    for name in ("a", "b"):
        found.update(committed(name, 2))
    assert "it waits for them" not in drawn(found.render(1, width), width)


def test_a_member_that_does_not_answer_is_silent_until_a_round_is_made() -> None:
    found = board(committed("a", 1), committed("b", 1), happened("a", "joined", about="far"))
    found.update(happened("b", "waiting"))
    for name in ("b", "far"):
        found.update(happened("a", "silent", about=name, why="no heartbeat for 5 s"))
    found.update(happened("a", "waiting", why="only 1 of 3 peers answer, b, far not; it waits for them"))
    text = drawn(found.render(1, 80), 80)
    assert [row(text, name).split()[1] for name in ("a", "b", "far")] == ["waiting", "waiting", "silent"]
    found.update(committed("a", 2))
    assert row(drawn(found.render(1, 80), 80), "far").split()[1] == "training"


def test_of_a_peer_that_is_waited_for_as_it_evaluates_the_line_says_so() -> None:
    found = board(committed("a", 1), committed("b", 1), committed("c", 1))
    found.update(happened("b", "stalled", about="a", why="60 s of evaluation, the first", work="evaluation"))
    assert "waiting for a, which evaluates  " in found.headline(1)
    found.update(happened("b", "stalled", about="c", why="60 s of local steps, the first", work="local steps"))
    assert "waiting for c, a, which evaluates  " in found.headline(1)
    found.update(happened("a", "stalled", why="60 s of local steps, the first", work="local steps"))
    assert "waiting for a, c  " in found.headline(1)


def test_a_stall_that_all_tell_of_is_told_once_and_again_when_it_lasts() -> None:
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=clock) as progress:
        for seconds in (10, 40):
            for teller in ("a", "b", "c"):
                progress.update(happened(teller, "stalled", about="b", why=f"{seconds} s of local steps"))
            clock.now += 30
        progress.update(happened("a", "goes_on", about="b", why="after 71 s of local steps"))
    text = errors.getvalue()
    assert text.count("peer b stalled: 10 s of local steps") == text.count("peer b stalled: 40 s of local steps") == 1
    assert "peer b goes on: after 71 s of local steps" in text


def test_a_peer_that_left_is_not_shown_as_lost() -> None:
    found = board(committed("b", 1), happened("b", "left"), happened("a", "lost", about="b"))
    assert found.peers["b"].state == "left"


def test_a_peer_left_out_of_a_round_is_missing_until_it_is_heard_again() -> None:
    absent = Missing(peer="b", since_s=1.0, why="straggler")
    found = board(committed("b", 1), committed("a", 2, missing=(absent,)))
    assert (found.peers["b"].state, found.peers["b"].event) == ("missing", "missing: straggler")
    found.update(committed("b", 2))
    assert found.peers["b"].state == "training"


@pytest.mark.parametrize("width", [60, 80, 100, 120, 200])
def test_no_line_of_the_table_is_wider_than_the_terminal(width: int) -> None:
    many = [committed(f"peer-with-a-rather-long-name-{index}", 3) for index in range(6)]
    text = drawn(board(*many, happened(many[0].peer, "error", why="x" * 500), steps=10_000).render(9, width), width)
    assert max(map(len, text.splitlines())) <= width
    assert len(text.splitlines()) == 1 + 1 + 6


def test_more_than_sixteen_peers_are_one_row_and_the_slowest() -> None:
    many = [committed(f"p{index}", 5, step=50 + index) for index in range(MOST_ROWS + 48)]
    text = drawn(board(*many, happened("p1", "lost", about="p9"), steps=1000).render(1, 120))
    assert "all 64" in text
    assert "63 training" in text
    assert "1 lost" in text
    assert "787.5" in text  # steps a second of those that train
    assert "96.0 MB" in text
    shown = ["all", "p9", *(f"p{index}" for index in range(SLOWEST))]
    assert [line.split()[0] for line in text.splitlines()[2:]] == shown


def test_a_loss_that_is_not_finite_is_said_and_breaks_nothing() -> None:
    found = board(committed("a", 1, loss=math.inf, steps_per_s=math.inf))
    assert "not finite" in drawn(found.render(1, 120))
    assert "loss" not in found.headline(1)


def test_text_of_a_peer_can_neither_drive_the_terminal_nor_write_markup() -> None:
    name, why = "\x1b[2J\x1b]0;owned\x07[red]x[/]", "line\nbreak \x1b[31m[bold]"
    records = (committed(name, 1), happened(name, "error", why=why))
    lines = io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=lines, clock=Clock()) as progress:
        for record in records:
            progress.update(record)
    summary = PeerSummary(
        peer=name, steps=1, exchanges=1, bytes_sent=0, bytes_received=0, compute_s=0, wait_s=0, transfer_s=0, loss=1
    )
    lost = Lost(peer=name, when=1.0, why=why)
    result = Result(loss=1.0, wall_s=1.0, exchanges=1, peers=(summary,), lost=(lost,), run="runs/x")
    for text in (drawn(board(*records).render(1, 120)), drawn(final_table(result)), lines.getvalue()):
        assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", text)
        assert "[red]x" in text or "error" in text


@pytest.mark.parametrize("width", [80, 70, 60])
def test_the_live_table_of_a_narrow_terminal_cuts_names_or_leaves_columns_out_but_cuts_no_number(width: int) -> None:
    big = {"step": 123_456, "bytes_sent": 150_000_000, "steps_per_s": 1234.5, "metrics": {"accuracy": 0.9222}}
    found = board(*(committed(f"{index}" * 64, 1234, **big) for index in range(4)), steps=1_000_000)
    found.headline(1)
    found.update(committed("0" * 64, 1235, **{**big, "step": 200_000, "bytes_sent": 0}))
    text = drawn(found.render(3600, width), width)
    assert all(len(line.rstrip()) <= width for line in text.splitlines())
    assert {re.sub(r"\d{9}…", "NAME", cell) for cell in re.findall(r"\S*…", text)} == {"NAME"}
    assert "123,456 of 1,000,000" in text
    assert re.search(r"about .* left", text), "nor is the end of the line above it cut off"
