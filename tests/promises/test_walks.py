"""The four walks of docs/architecture.md are those that the calls take; none enters a file twice on its way down."""

import asyncio
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from samovar.__main__ import main
from samovar.aggregation.periods import registry
from samovar.aggregation.periods.fixed import Fixed
from samovar.aggregation.schedules.ring import Ring
from samovar.peers.launch.spawn import ForkServer, SpawnError
from samovar.peers.run_settings.settings import Settings
from samovar.peers.training.trainer import Trainer
from samovar.protocols.channel import Channel
from samovar.protocols.collectives.allreduce import Allreduce, allreduce
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.group import Group
from samovar.protocols.transfer.chunks import Inbox
from samovar.protocols.zeromq.sockets import Socket
from samovar.protocols.zeromq.transport import KeyPair, ZeroMQTransport
from samovar.sims.scenarios.scenario import Scenario
from samovar.sims.scenarios.toy import toy_task
from samovar.sims.world.loop import run_virtual
from samovar.sims.world.transport import SimulatedTransport
from samovar.sims.world.world import World

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
LAYERS = ("aggregation", "protocols", "peers")
LOOP, ALLREDUCE = "peers/training/loop.py", "protocols/collectives/allreduce.py"
OUTBOX, READER = "protocols/link/outbox.py", "protocols/zeromq/reader.py"


def walk(title: str) -> list[str]:
    """The files of that walk on the page, in order."""
    section = PAGE.split(f"### {title}")[1].split("\n#")[0]
    return re.findall(r"^\d+\. `([^`]+)`", section, re.MULTILINE)


def entered(first: str) -> list[str]:
    """The library's files that the open calls have entered from `first` on, the outermost call first."""
    files, frame = list[str](), sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(ROOT) and path.relative_to(ROOT).parts[0] in LAYERS:
            file = path.relative_to(ROOT).as_posix()
            if files[:1] != [file]:
                files.insert(0, file)
        frame = frame.f_back  # type: ignore[assignment]
    return files[files.index(first) :] if first in files else []


def noting(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, note: Callable[[], None]) -> None:
    """From now on `note` is called before each call of that method."""
    method = getattr(owner, name)

    def noted(*arguments: Any, **options: Any) -> Any:
        note()
        return method(*arguments, **options)

    monkeypatch.setattr(owner, name, noted)


WIRE, STEP = walk("The model, from a local step to the wire"), walk("`samovar train`, to the first local step")
PERIOD, FRAME = walk("`--period`, from flag to use"), walk("A frame, from the socket to the conversation that wants it")


def test_no_walk_enters_a_file_twice() -> None:
    for files in (WIRE, STEP, PERIOD, FRAME):
        assert len(files) > 4
        assert len({*files}) == len(files)


def test_a_model_takes_the_walk_on_the_page_from_the_loop_to_the_outbox(monkeypatch: pytest.MonkeyPatch) -> None:
    sums, steps = list[list[str]](), list[list[str]]()
    noting(monkeypatch, SimulatedTransport, "post", lambda: sums.append(entered(LOOP)))
    noting(monkeypatch, Trainer, "train", lambda: steps.append(entered(LOOP)))
    scenario = Scenario.plain(Settings(peers=2, steps=4, period=2, schedule="ring", device="cpu"))
    run_virtual(World(toy_task(scenario.toy_size), scenario).run(within_s=100.0), seed=0)
    assert WIRE[: WIRE.index(OUTBOX) + 1] in sums
    assert [file for file in STEP[STEP.index(LOOP) :] if not file.endswith("/compute.py")] in steps


async def test_a_chunk_takes_the_walks_on_the_page_through_zeromq(monkeypatch: pytest.MonkeyPatch) -> None:
    out, back = list[list[str]](), list[list[str]]()
    opened = Socket.__init__

    def noted(self: Socket, *arguments: Any, **options: Any) -> None:
        opened(self, *arguments, **options)
        noting(monkeypatch, self, "_send", lambda: out.append(entered(ALLREDUCE)))

    monkeypatch.setattr(Socket, "__init__", noted)
    noting(monkeypatch, Allreduce, "_receive", lambda: back.append(entered(READER)))
    ends = [
        Endpoint(ZeroMQTransport(KeyPair.new(), listen="tcp://127.0.0.1:0"), patience_s=5.0, rng=random.Random(n))
        for n in range(2)
    ]
    ids = tuple(end.id for end in ends)
    for end in ends:
        await end.open()
    for here, there in (ends, ends[::-1]):
        here.dial(there.id, there.address)

    async def sums_at(rank: int) -> None:
        channel, group = Channel(ends[rank], "sums"), Group(ids, 1, rank)
        inbox = Inbox(channel, lambda: group)
        for number in range(4):  # the first chunks wait until the links are up
            await allreduce(channel, inbox, group, Ring(), torch.ones(100_000), stage_id=(1, number, 0))

    await asyncio.gather(sums_at(0), sums_at(1))
    for end in ends:
        await end.close()
    assert WIRE[WIRE.index(ALLREDUCE) :] in out
    assert FRAME in back


def test_a_period_takes_the_walk_on_the_page_and_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[list[str]]()

    def fixed(steps: int) -> Fixed:
        made.append(entered(PERIOD[0]))
        return Fixed(steps)

    monkeypatch.setattr(registry, "Fixed", fixed)
    settings = Settings.read(None, {"period": "16"})
    settings.of_peer(0).changed(listen="tcp://*:4000").to_json()
    assert made == [PERIOD]


def test_the_command_takes_the_walk_on_the_page_to_the_fork_server(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = list[list[str]]()

    async def start(log: Path) -> ForkServer:
        asked.append(entered(STEP[0]))
        raise SpawnError("not in this test")

    monkeypatch.setattr(ForkServer, "start", start)
    with pytest.raises(SystemExit):
        main(["train", str(ROOT / "examples" / "digits.py"), "--run", str(tmp_path / "run"), "--quiet"])
    assert asked == [STEP[: STEP.index("peers/launch/spawn.py") + 1]]
