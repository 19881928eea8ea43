"""Ctrl-C amid a call from Python: `samovar.Stopped`, and a run that can be resumed."""

from __future__ import annotations

import asyncio
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from from_python import folder_of_runs, trained  # noqa: F401
from live import STEADY

import samovar
from samovar.peers.checkpoints import checkpoint
from samovar.peers.cli.output import Output
from samovar.peers.records.run import read_run


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C, once, when the second round is over."""
    put, due = Output.put, ["once"]

    def noted(self: Any, record: Any) -> None:
        put(self, record)
        if getattr(record, "version", 0) >= 2 and due:
            due.clear()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    monkeypatch.setattr(Output, "put", noted)


def test_ctrl_c_stops_the_peers_in_good_order_and_the_run_can_be_resumed(here: Path, interrupted: None) -> None:
    with pytest.raises(samovar.Stopped) as stopped:
        trained(STEADY, steps=100_000, run="run")
    assert stopped.value.code == 130
    assert "go on with: samovar.train(" in str(stopped.value)
    assert "resume='run')" in str(stopped.value)
    result = stopped.value.result
    assert result.exchanges >= 2
    assert result.lost == ()
    taken = int(checkpoint.numbers_of(here / "run/checkpoint/peer-0.safetensors")["steps"])
    resumed = samovar.train(STEADY, resume=result, steps=taken + 4, quiet=True)
    assert resumed.exchanges > result.exchanges
    told = [event.event for event in resumed.events if event.event in ("stopped", "resumed")]
    assert told == ["stopped"] * 2 + ["resumed"] * 2
    begun, *gone_on = (here / "run/command.txt").read_text().splitlines()
    assert "steps=100000" in begun
    assert gone_on == [f"samovar.train({str(STEADY)!r}, resume='run', steps={taken + 4})"]
    assert read_run(here / "run").resumed_by == tuple(gone_on)


async def in_a_notebook() -> None:
    samovar.simulate(STEADY, peers=2, steps=100_000, quiet=True)


def test_a_simulation_that_is_interrupted_says_so_beside_a_loop_too(here: Path, interrupted: None) -> None:
    loop = asyncio.new_event_loop()
    with pytest.raises(samovar.Stopped, match=r"as far as it came: samovar report runs/steady-001"):
        loop.run_until_complete(in_a_notebook())
    loop.close()


def test_a_simulation_that_is_interrupted_says_so(here: Path, interrupted: None) -> None:
    with pytest.raises(samovar.Stopped, match=r"as far as it came: samovar report runs/steady-001"):
        in_a_notebook().send(None)


def test_a_sweep_that_is_interrupted_says_so(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupts(*given: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("samovar.sims.api.swept", interrupts)
    with pytest.raises(samovar.Stopped) as stopped:
        samovar.sweep(2)
    assert (stopped.value.code, str(stopped.value)) == (130, "stopped")
    assert capsys.readouterr().err == "samovar: stopped\n"
