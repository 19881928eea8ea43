"""Runs that nobody ran: what their peers would have told."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from samovar.peers.records.columns import ROUNDS
from samovar.peers.records.record_file import RecordFile
from samovar.peers.records.records import EventRecord, ExchangeRecord, Missing, Record
from samovar.peers.records.result import Lost, Result
from samovar.peers.records.run import COMMAND_FILE, RESULT_FILE, Run, read_run
from samovar.peers.report.overview import absences, totals

HOSTILE = "</script><script>alert(1)</script>"


WHY = "no heartbeat for 5 s"


def synthetic_records(
    *, peers: int = 4, rounds: int = 40, lost: int | None = 2, names: tuple[str, ...] = (), seed: int = 1
) -> dict[str, list[Record]]:
    """What peers tell in a run with a growing period, a straggler, and peer number `lost` gone at half time."""
    rng = random.Random(seed)
    who = list(names) or (["alice", "bob", "carol", "dave"] if peers == 4 else [f"p{index}" for index in range(peers)])
    files: dict[str, list[Record]] = {name: [] for name in who}
    speed = {name: rng.uniform(80, 110) * (0.6 if index == 1 else 1.0) for index, name in enumerate(who)}
    now, step, stall = 0.0, 0, 0.0
    gone: str | None = None
    for name in who:
        files[name].append(EventRecord(peer=name, time_s=0.01, event="started"))
    for number in range(1, rounds + 1):
        if lost is not None and number == rounds // 2:
            gone = who[lost]
            for name in who:
                if name != gone:
                    files[name].append(EventRecord(peer=name, time_s=now + 5.2, event="lost", about=gone, why=WHY))
            stall = 5.0
        alive = [name for name in who if name != gone]
        period = min(32, 4 * 2 ** (5 * number // rounds))
        step += period
        compute = {name: period / speed[name] * rng.uniform(0.9, 1.1) for name in alive}
        moving = rng.uniform(0.08, 0.12)
        slowest = max(compute.values())
        now += slowest + stall + moving
        loss = 2.3 * math.exp(-number / (0.3 * rounds)) + 0.05 + rng.uniform(0, 0.03)
        learned = 1 - 0.9 * math.exp(-number / (0.2 * rounds))
        missing: tuple[Missing, ...] = ()
        if gone:
            advice = "start it again: it catches up"
            missing = (Missing(peer=gone, address="10.0.0.3:7001", since_s=now - 5, why=WHY, advice=advice),)
        for name in alive:
            record = ExchangeRecord(
                peer=name,
                version=number,
                details={"round": number, "generation": 1 if gone is None else 2, "period": period},
                step=step,
                time_s=now + rng.uniform(0, 0.002),
                loss=loss * rng.uniform(0.95, 1.05),
                compute_s=compute[name],
                wait_s=slowest - compute[name] + stall,
                transfer_s=moving,
                bytes_sent=rng.randrange(90_000, 110_000),
                bytes_received=rng.randrange(90_000, 110_000),
                steps_per_s=speed[name],
                members=len(alive),
                missing=missing,
                metrics={"accuracy": learned} if name == who[0] and number % 4 == 0 else {},
            )
            files[name].append(record)
        stall = 0.0
    return files


def synthetic_run(folder: Path, **settings: Any) -> Run:
    """The same as a run folder, written and read."""
    for name, records in synthetic_records(**settings).items():
        with RecordFile(folder, name) as file:
            for record in records:
                file.append(record)
    run = read_run(folder)
    result = Result(
        metrics={"accuracy": 0.973},
        loss=0.0842,
        wall_s=run.exchanges[-1].time_s,
        exchanges=run.exchanges[-1].version,
        peers=tuple(totals(run)),
        lost=tuple(Lost(peer=found.peer, when=found.lost_s[0], why=WHY) for found in absences(run)),
        run="runs/digits-001",
    )
    (folder / RESULT_FILE).write_text(result.to_json())
    (folder / COMMAND_FILE).write_text("samovar train digits --peers 4 --period adaptive --seed 1\n")
    return read_run(folder)


def in_memory(files: dict[str, list[Record]]) -> Run:
    """A run without a folder, where the number of records would make files slow."""
    records = sorted((record for told in files.values() for record in told), key=lambda record: record.time_s)
    return Run(
        folder=Path("in-memory"),
        peers=tuple(files),
        columns=ROUNDS,
        exchanges=tuple(record for record in records if isinstance(record, ExchangeRecord)),
        events=tuple(record for record in records if isinstance(record, EventRecord)),
    )
