"""Progress: a person sees what peers tell, a program's stdout stays clean, and the terminal comes back as it was."""

from __future__ import annotations

import dataclasses
import io
import math
import re
from typing import Any

import pytest
from rich.console import Console, RenderableType

from samovar.peers.cli.live_table import MOST_ROWS, SLOWEST, Board
from samovar.peers.cli.progress import LINE_EVERY_S, Progress, final_table
from samovar.peers.records.records import EventName, EventRecord, ExchangeRecord, Missing, Record
from samovar.peers.records.result import Lost, PeerSummary, Result
from samovar.peers.records.tally import Tally
from samovar.peers.records.units import bytes_text, clock_text, loss_text, moment_text, plain, seconds_text

HIDE, SHOW, ERASE = "\x1b[?25l", "\x1b[?25h", "\x1b[2K"


class Clock:
    """Monotonic seconds that only a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def committed(peer: str, number: int, **changes: Any) -> ExchangeRecord:
    record = ExchangeRecord(
        peer=peer,
        version=number,
        details={"round": number, "generation": 1, "period": 10},
        step=10 * number,
        time_s=float(number),
        loss=2.0 / number,
        compute_s=0.7,
        wait_s=0.2,
        transfer_s=0.1,
        bytes_sent=1_500_000,
        bytes_received=250_000,
        steps_per_s=12.5,
        members=3,
    )
    return dataclasses.replace(record, **changes)


def happened(peer: str, event: EventName, about: str = "", why: str = "", work: str = "") -> EventRecord:
    return EventRecord(peer=peer, time_s=1.0, event=event, about=about, why=why, work=work)


def terminal(width: int = 120) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, height=40, legacy_windows=False, _environ={})


def drawn(what: RenderableType, width: int = 120) -> str:
    console = Console(file=io.StringIO(), width=width, _environ={})
    console.print(what)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def written(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def board(*records: Record, steps: int = 100) -> Board:
    found = Board(steps=steps)
    for record in records:
        found.update(record)
    return found


def row(text: str, peer: str) -> str:
    (line,) = (line for line in text.splitlines() if line.startswith(f"{peer} "))
    return line


# ---- the table


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


def test_a_lost_peer_is_shown_as_lost_and_why_and_as_training_again_once_it_is_back() -> None:
    found = board(committed("a", 1), committed("b", 1), happened("a", "lost", about="b", why="no heartbeat for 5 s"))
    assert re.search(r"lost .*lost: no heartbeat for 5 s", row(drawn(found.render(1, 120)), "b"))
    assert "2 peers, 1 lost" in found.headline(1)
    found.update(committed("b", 3, caught_up=True))
    assert "training" in row(drawn(found.render(1, 120)), "b")


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


# ---- where it is shown


def test_on_a_terminal_the_table_is_live_and_the_cursor_comes_back() -> None:
    console = terminal()
    with Progress(steps=100, console=console, clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    assert progress.mode == "live"
    text = written(console)
    assert text.index(HIDE) < text.index("alice") < text.rindex(SHOW)
    assert HIDE not in text[text.rindex(SHOW) :]
    assert ERASE in text[text.rindex("alice") :]  # to make room for the final table


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_the_terminal_comes_back_after_an_exception_and_the_last_table_stays(error: type[BaseException]) -> None:
    console = terminal()
    with pytest.raises(error), Progress(steps=100, console=console, clock=Clock()) as progress:  # noqa: PT012
        progress.update(committed("alice", 2))
        raise error
    text = written(console)
    assert HIDE not in text[text.rindex(SHOW) :]
    assert ERASE not in text[text.rindex("alice") :]


@pytest.mark.parametrize("quiet", [False, True])
@pytest.mark.parametrize("json", [False, True])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_stdout_stays_clean_unless_a_person_watches_it(
    quiet: bool, json: bool, is_terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    console = terminal() if is_terminal else Console(file=io.StringIO(), _environ={})
    errors = io.StringIO()
    with Progress(quiet=quiet, json=json, console=console, errors=errors, clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    assert bool(written(console)) == (is_terminal and not quiet and not json)
    assert bool(errors.getvalue()) == (not is_terminal and not quiet)
    assert capsys.readouterr() == ("", "")


def test_a_piped_stdout_is_no_terminal_even_where_colour_is_forced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    with Progress(clock=Clock()) as progress:
        progress.update(committed("alice", 2))
    out, err = capsys.readouterr()
    assert out == ""
    assert "round 2" in err


def test_lines_come_at_least_two_seconds_apart_and_no_event_is_forgotten() -> None:
    clock, errors = Clock(), io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=clock) as progress:
        for number in range(1, 101):
            progress.update(committed("alice", number))
            if number == 50:
                progress.update(happened("alice", "lost", about="bob", why="no heartbeat"))
            clock.now += 0.1
        lines = errors.getvalue().splitlines()
        assert len(lines) == math.ceil(100 * 0.1 / LINE_EVERY_S)
        assert "\x1b" not in errors.getvalue()
        assert sum("bob lost: no heartbeat" in line for line in lines) == 1
        progress.update(happened("alice", "error", why="disk full"))
    assert "alice error: disk full" in errors.getvalue().splitlines()[-1]


def test_one_line_tells_a_few_events_and_counts_the_rest() -> None:
    errors = io.StringIO()
    with Progress(console=Console(file=io.StringIO()), errors=errors, clock=Clock()) as progress:
        for index in range(1000):
            progress.update(happened(f"p{index}", "joined"))
    assert len(errors.getvalue().splitlines()) == 2
    assert "and 996 more events" in errors.getvalue()
    assert len(errors.getvalue()) < 1000


def test_an_output_that_went_away_does_not_fail_the_run() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    closed = io.StringIO()
    closed.close()
    for errors in (Gone(), closed):
        with Progress(console=Console(file=io.StringIO()), errors=errors, clock=Clock()) as progress:
            progress.update(committed("alice", 1))


# ---- the end


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
        (loss_text(2300.0), "2300"),
        (loss_text(math.inf), "not finite"),
        (loss_text(math.nan), "-"),
        (plain("a\x1bb\u202ec"), "a\ufffdb\ufffdc"),
        (plain("x" * 300, 10), "xxxxxxxxx…"),
    ],
)
def test_numbers_and_names_read_well(shown: str, text: str) -> None:
    assert shown == text


def test_a_peer_was_lost_when_it_was_first_seen_to_be() -> None:
    seen = [
        EventRecord(peer=f"{s}", time_s=s, event="lost", about="carl", why=f"silent at {s:g}") for s in (3.0, 2.0, 4.0)
    ]
    assert Tally(seen).lost == (Lost(peer="carl", when=2.0, why="silent at 2"),)


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
