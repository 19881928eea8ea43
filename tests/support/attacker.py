"""A hostile process with a valid invite, in a real run: ``python tests/support/attacker.py JOIN_TXT TASK``.

It says that it is ready, and then does what it is told on stdin, a line of JSON each: an attack of `attacks` by its
name, for so many turns or seconds. When one is over it answers with the keys that it used, and the processor seconds
that it took. ``--member DIR``: it joins as ``samovar join`` does, with a run folder in DIR, and attacks as that member.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shlex
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from samovar.__main__ import main as samovar
from samovar.peers.launch.join_target import JoinTarget
from samovar.peers.machine.open_files import raise_file_limit
from samovar.peers.peer import Peer
from samovar.peers.run_settings.settings import Settings
from samovar.peers.task.task import load_task
from samovar.peers.training.loop import Ended, Training
from samovar.peers.training.trainer import Trainer
from samovar.protocols.channel import Channel, Envelope
from samovar.protocols.endpoint import Endpoint
from samovar.protocols.local_sgd.rounds import LOCAL_SGD
from samovar.protocols.members.hello import ask_run
from samovar.protocols.members.messages import MEMBERS, Join, Refused, Welcome
from samovar.protocols.members.view import Attributes, Member, Version, View
from samovar.protocols.transport import PeerId
from samovar.protocols.wire.frames import kinds, type_of
from samovar.protocols.zeromq.transport import KeyPair

SETTINGS = Settings(listen="tcp://127.0.0.1:0", advertise="127.0.0.1", patience_s=5.0)


@dataclass(frozen=True)
class Victim:
    """An honest peer, as a line of join.txt has it."""

    address: str
    invite: str

    def door(self, own: KeyPair | None = None) -> JoinTarget:
        """Without `own`, as somebody whom nobody has seen."""
        door = JoinTarget.of(self.address, self.invite, None, SETTINGS)
        return JoinTarget(door.address, door.contact, own or door.own, door.guest if own is None else None)


def victims(join_txt: Path) -> list[Victim]:
    lines = map(shlex.split, join_txt.read_text().splitlines())
    return [Victim(words[2], words[words.index("--invite") + 1]) for words in lines if words[:2] == ["samovar", "join"]]


_ANSWERS = {"RunIs", "Welcome", "Refused", "Manifest", "Part", "Busy", "Admitted", "Unanswered"}
"""Kinds that whoever has asked waits for."""


class Attacker:
    """An attacker that has the invite of all `victims`, and the model's layout."""

    def __init__(self, victims: list[Victim], task: Path) -> None:
        self.victims, self.keys = victims, list[PeerId]()
        self.hears: Callable[[Envelope], None] = lambda envelope: None
        """Told of what honest peers say, but for answers."""
        trainer = Trainer(load_task(task), seed=0, data_shard=0, data_shards=1, device=torch.device("cpu"))
        self._agreement = trainer.copy.agreement()
        self.ids = [victim.door().contact for victim in victims]

    async def enter(self, own: KeyPair | None = None) -> tuple[Endpoint, KeyPair]:
        """An open endpoint to whose messages all victims listen, under a key that is let in just now, or was before."""
        door = self.victims[0].door(own)
        endpoint = await door.enter(SETTINGS)
        assert door.own is not None
        said = [kind for kind in kinds() if kind.partition(".")[2] not in _ANSWERS]
        for channel, kind in itertools.product((MEMBERS, LOCAL_SGD), said):
            Channel(endpoint, channel).on(type_of(kind), self._hear)
        for victim in self.victims:
            endpoint.dial(victim.door().contact, victim.address)
        if door.own.public not in self.keys:
            self.keys.append(door.own.public)
        return endpoint, door.own

    def _hear(self, envelope: Envelope) -> None:
        self.hears(envelope)
        envelope.done()

    async def join(self, endpoint: Endpoint, name: str, *, life: int = 0, ready: bool = True) -> View:
        """Ask the first victim to be let in, as a newcomer that never does anything more."""
        run = (await ask_run(endpoint, self.ids[0])).run
        member = Member(endpoint.id, name, endpoint.address, Attributes(), 0, life=life)
        digest, words = self._agreement.digest, self._agreement.words
        answer = await Channel(endpoint, MEMBERS).ask(
            self.ids[0],
            lambda ask: Join(ask, run, member, digest, words, Version(0, 0), ready),
            answers=(Welcome, Refused),
            within_s=10.0,
        )
        assert isinstance(answer.message, Welcome), answer.message
        return answer.message.view


class Turns:
    """Goes round `times`, or for so many seconds."""

    def __init__(self, times: int | None, for_s: float | None) -> None:
        self._times, self._for_s = times, for_s

    def __iter__(self) -> Iterator[int]:
        began = time.monotonic()
        for turn in itertools.count():
            over = turn == self._times if self._for_s is None else time.monotonic() >= began + self._for_s
            if over:
                return
            yield turn


async def orders() -> AsyncIterator[tuple[str, Turns]]:
    """What to do next, until stdin is closed."""
    print(json.dumps({"ready": True}), flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        yield order["attack"], Turns(order.get("turns"), order.get("for_s"))


def answer(keys: list[PeerId], began_s: float) -> None:
    print(json.dumps({"keys": keys, "cpu_s": time.process_time() - began_s}), flush=True)


async def attack_by_keys(join_txt: Path, task: Path) -> None:
    from attacks import BY_KEYS

    raise_file_limit()
    attacker = Attacker(victims(join_txt), task)
    async for name, turns in orders():
        attacker.keys, began_s = [], time.process_time()
        await BY_KEYS[name](attacker, turns)
        answer(attacker.keys, began_s)


def attack_as_member(join_txt: Path, task: Path, folder: Path) -> None:
    """All else it does as any member."""
    from attacks import AS_MEMBER

    run, attacking = Training.run, list[asyncio.Task[None]]()

    async def work(peer: Peer) -> None:
        await peer.membership.until(lambda: peer.endpoint.id in peer.membership.view.ids)
        async for name, turns in orders():
            began_s = time.process_time()
            await AS_MEMBER[name](peer, turns)
            answer([peer.endpoint.id], began_s)
        os.kill(os.getpid(), signal.SIGTERM)

    async def run_and_attack(training: Training, contact: Awaitable[PeerId | None]) -> Ended:
        attacking.append(asyncio.create_task(work(training.peer)))
        return await run(training, contact)

    Training.run = run_and_attack  # type: ignore[method-assign]
    victim = victims(join_txt)[0]
    os.chdir(folder)
    words = ("--invite", victim.invite, "--name", "villain", "--run", "villain", "--quiet", "--no-report")
    samovar(["join", victim.address, str(task), *words])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("join_txt", type=Path)
    parser.add_argument("task", type=Path)
    parser.add_argument("--member", type=Path)
    options = parser.parse_args()
    join_txt, task = options.join_txt.resolve(), options.task.resolve()
    if options.member is None:
        asyncio.run(attack_by_keys(join_txt, task))
    else:
        attack_as_member(join_txt, task, options.member)


if __name__ == "__main__":
    main()
