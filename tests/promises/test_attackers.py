"""A hostile process with a valid invite, and one that is a member, against a run of real processes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import torch
from live import ROOT, Ended, Live, samovar, stop_all
from villain import Grown, Villain

from samovar.peers.checkpoints.checkpoint import load

pytestmark = pytest.mark.timeout(240)

HELD = ROOT / "tests" / "support" / "tasks" / "held.py"
STEPS, PERIOD, PEERS = 400, 8, 3
MIB_MAX = 64.0
TRAIN = ("train", HELD, "--peers", PEERS, "--period", PERIOD, "--steps", STEPS, "--patience-s", 4, "--run", "run")
KEYS = {"chunks": 2, "extremes": 2, "rejoins": 1, "joiners": 1, "garbage": 1, "state": 1}
MEMBER = {"chunks": 1, "deals": 1, "ballots": 1, "proposals": 3}
"""Each attack, and how often it is done."""


@dataclass
class Aftermath:
    """What is left of a run when whoever attacked it is gone, and it has finished."""

    folder: Path
    run: Live
    ended: Ended
    keys: dict[str, set[str]] = field(default_factory=dict)
    grown_mib: dict[str, float] = field(default_factory=dict)

    @property
    def bits(self) -> list[torch.Tensor]:
        return bits(self.folder)

    def rounds(self, peer: int) -> set[int]:
        return {row["round"] for row in self.run.records(str(peer)) if row["kind"] == "round"}


def bits(folder: Path) -> list[torch.Tensor]:
    """The model of each of the peers that began the run."""
    files = [folder / f"run/checkpoint/peer-{peer}.safetensors" for peer in range(PEERS)]
    return [load(file).tensors["state/vector"] for file in files]


def named(run: Live, keys: set[str]) -> bool:
    """Whether an event tells of one of these."""
    events = [f"{row['why']} {row['key']}" for row in run.records() if row["kind"] == "event"]
    return any(key in told for key in keys for told in events)


def attacked(folder: Path, attacks: dict[str, int], *, member: bool) -> Aftermath:
    """A run that is held until all attacks are over, and their keys are in its records."""
    (folder / "held").touch()
    run = Live(folder, *TRAIN, "--json", "--no-report")
    keys, grown_mib = dict[str, set[str]](), dict[str, float]()
    run.until(lambda: run.rounds() >= 1, "round 1")
    peers = list(run.peers().values())[:PEERS]
    with Villain(run.folder / "join.txt", HELD, folder if member else None) as villain:
        for name, turns in attacks.items():
            with Grown(peers) as grown:
                keys[name] = {*villain.attack(name, turns=turns)["keys"]}
            grown_mib[name] = grown.mib
    for name in attacks:
        run.until(lambda name=name: named(run, keys[name]), f"the key of {name} in the records")  # type: ignore[misc]
    (folder / "held").unlink()
    return Aftermath(folder, run, run.end(), keys, grown_mib)


@pytest.fixture(scope="module")
def by_keys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    yield attacked(tmp_path_factory.mktemp("keys"), KEYS, member=False)
    stop_all()


@pytest.fixture(scope="module")
def by_member(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aftermath]:
    yield attacked(tmp_path_factory.mktemp("member"), MEMBER, member=True)
    stop_all()


def test_a_run_that_keys_with_an_invite_attack_ends_with_the_bits_of_one_left_alone(
    by_keys: Aftermath, tmp_path: Path
) -> None:
    assert by_keys.ended.code == 0, by_keys.ended.err
    assert by_keys.ended.left == []
    assert all(by_keys.rounds(peer) == {*range(1, STEPS // PERIOD + 1)} for peer in range(PEERS))
    alone = samovar(tmp_path, *TRAIN, "--json", "--no-report")
    assert alone.code == 0, alone.err
    expected = bits(tmp_path)[0]
    assert all(torch.equal(expected, one) for one in by_keys.bits)


def test_a_run_that_a_member_attacks_makes_every_round_and_ends_with_one_model(by_member: Aftermath) -> None:
    assert by_member.ended.code == 0, by_member.ended.err
    assert by_member.ended.left == []
    assert all(by_member.rounds(peer) == {*range(1, STEPS // PERIOD + 1)} for peer in range(PEERS))
    assert all(torch.equal(by_member.bits[0], one) for one in by_member.bits)


@pytest.mark.parametrize("attack", KEYS)
def test_no_peer_grows_by_the_messages_of_keys_with_an_invite(by_keys: Aftermath, attack: str) -> None:
    assert by_keys.grown_mib[attack] <= MIB_MAX


@pytest.mark.parametrize("attack", MEMBER)
def test_no_peer_grows_by_the_messages_of_a_hostile_member(by_member: Aftermath, attack: str) -> None:
    assert by_member.grown_mib[attack] <= MIB_MAX


@pytest.mark.parametrize("attack", ["chunks", "extremes", "garbage", "state"])
def test_a_key_that_sends_bad_messages_is_an_event_in_the_records(by_keys: Aftermath, attack: str) -> None:
    refused = " ".join(row["why"] for row in by_keys.run.records() if row.get("event") == "refused")
    assert any(key in refused for key in by_keys.keys[attack])
