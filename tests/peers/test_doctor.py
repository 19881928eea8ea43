"""``samovar doctor``: what stands between this machine and a run, and what to change."""

from __future__ import annotations

import json
import math
import os
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from live import python, run_here, verb
from nursery import OPEN_FILES

import samovar
from samovar.peers.cli import doctor as verb_doctor
from samovar.peers.launch.keys import Invite
from samovar.protocols.addresses import split_address
from samovar.protocols.zeromq.transport import KeyPair


def found(*arguments: object, code: int) -> dict[str, dict[str, Any]]:
    """The findings of ``samovar doctor ARGUMENTS --json``, by what they are about."""
    result = verb("doctor", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (code, ""), result.output
    told = json.loads(result.stdout)
    assert told["well"] == (code == 0)
    return {finding["what"]: finding for finding in told["findings"]}


def test_doctor_without_an_address_checks_this_machine() -> None:
    findings = found(code=0)
    assert list(findings) == ["software", "processors", "open files", "addresses", "peers", "listening"]
    assert f"torch {torch.__version__}" in findings["software"]["found"]
    assert findings["software"]["found"].endswith("CURVE: yes")
    assert re.fullmatch(r"tcp://\S+:\d+; an unknown key is refused", findings["listening"]["found"])
    assert {finding["advice"] for finding in findings.values()} == {""}


def test_doctor_without_encryption_says_that_anybody_may_join() -> None:
    said = found("--insecure", code=0)["listening"]["found"]
    assert said.endswith("anybody may join, nothing is encrypted")


def test_people_get_a_line_for_each_finding() -> None:
    result = verb("doctor", "--listen", "tcp://127.0.0.1:0")
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "✓ software", "✓ processors", "✓ open files", "✓ addresses", "✓ peers", "✓ listening",
    ]  # fmt: skip
    assert re.search(r"  tcp://127\.0\.0\.1:\d+; an unknown key is refused$", lines[-1])


def test_a_finding_with_advice_gives_exit_code_1() -> None:
    limited = {**os.environ, OPEN_FILES: "300"}
    done = python("-m", "samovar", "doctor", "--listen", "tcp://127.0.0.1:0", env=limited)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    (at,) = [index for index, line in enumerate(lines) if line.startswith("✗")]
    assert re.fullmatch(r"✗ open files +at most 300", lines[at])
    assert lines[at + 1].strip() == "→ raise it (ulimit -n 1024): every peer takes a few"
    assert lines[-1].startswith("✓ listening")


def test_a_port_that_is_taken_is_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        result = verb("doctor", "--listen", listen)
    said = f"samovar: cannot listen on {listen}: the port is in use; choose another with --listen\n"
    assert (result.exit_code, result.stdout, result.stderr) == (2, "", said)


HERE = ("--listen", "tcp://127.0.0.1:0")


@contextmanager
def two_peers(folder: Path, **second: Any) -> Iterator[tuple[str, ...]]:
    """A run of two; yields what the doctor is told of it."""
    model = torch.nn.Linear(2, 1)
    with run_here(folder / "0") as here:
        settings = {"listen": "tcp://127.0.0.1:0", "run": folder / "1", "name": "1", **second}
        with samovar.join(**here, **settings) as run:
            run.wrap(torch.optim.SGD(model.parameters()), model)
            yield here["address"], "--invite", here["invite"]


def test_doctor_measures_the_way_to_each_peer_of_a_run_and_back(tmp_path: Path) -> None:
    with two_peers(tmp_path) as way:
        findings = found(*way, *HERE, code=0)
        lines = verb("doctor", *way, *HERE).stdout.splitlines()
    peers = {finding["peer"]: finding for finding in findings.values() if "peer" in finding}
    assert set(peers) == {"0", "1"}
    assert peers["0"]["address"] == way[0]
    for peer in peers.values():
        assert 0 < peer["rtt_s"] < math.inf
        assert 0 < peer["bandwidth_Bps"] < math.inf
        assert re.fullmatch(r"\d+\.\d ms, [\d.]+ [kMG]?B/s", peer["found"])
    for name, line in zip(peers, lines[-2:], strict=True):
        assert re.match(rf"✓ peer {name} at tcp://127\.0\.0\.1:\d+ +\d+\.\d ms, ", line)


def test_doctor_names_the_own_addresses_that_the_other_side_reaches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verb_doctor, "local_addresses", lambda: ["127.0.0.3", "127.0.0.1"])
    with run_here(tmp_path / "run") as here:
        way = (here["address"], "--invite", here["invite"], *HERE)
        calls = [finding for finding in found(*way, code=0).values() if "reached" in finding]
        lines = verb("doctor", *way).stdout.splitlines()
    hosts = [split_address(call["address"])[0] for call in calls]
    assert list(zip(hosts, [call["reached"] for call in calls], strict=True)) == [
        ("127.0.0.1", True),
        ("127.0.0.3", False),
    ]
    assert {call["advice"] for call in calls} == {""}, "an address that nobody is told of does no harm"
    assert [line[0] for line in lines if "the other side calls" in line] == ["✓", "-"]


def test_an_unreachable_advertised_address_is_told_with_advice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_here(tmp_path / "run") as here:
        way = (here["address"], "--invite", here["invite"], *HERE, "--advertise", "127.0.0.2")
        (told,) = [finding for finding in found(*way, code=1).values() if finding["advice"]]
        assert told["what"].startswith("the other side calls tcp://127.0.0.2:")
        assert told["found"].startswith("not reached: ")
        assert told["advice"] == "others cannot call this peer there: join with --advertise 127.0.0.1"
        monkeypatch.setattr(verb_doctor, "local_addresses", list)
        (told,) = [finding for finding in found(*way, code=1).values() if finding["advice"]]
        assert re.match(r"nobody can call this peer: open TCP port \d+ ", told["advice"])


def test_doctor_tells_of_a_peer_that_this_machine_cannot_call(tmp_path: Path) -> None:
    with two_peers(tmp_path, advertise="127.0.0.2") as way:
        findings = found(*way, *HERE, "--patience-s", 0.5, code=1)
    (told,) = [finding for finding in findings.values() if finding["advice"]]
    assert told["what"].startswith("peer 1 at tcp://127.0.0.2:")
    assert told["found"].startswith("not heard of for 0.5 s: nobody listens")
    assert told["advice"] == "this machine cannot reach it: look for a firewall, or use a VPN"


def test_a_run_that_is_not_there_is_one_line_with_advice() -> None:
    invite = Invite.to(KeyPair.new().public).to_text()
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unheard.getsockname()[1]}"
        for way in (["--invite", invite], ["--insecure", "--peer-key", "ab" * 16]):
            result = verb("doctor", address, *way, "--patience-s", 0.5)
            assert (result.exit_code, result.stderr) == (1, "")
            *_, line, advice = result.stdout.splitlines()
            assert re.fullmatch(rf"✗ the way to {address}  not heard of for 0\.5 s: nobody listens", line)
            assert advice.strip() == "→ is the run still there? Ask for its present join line"


def test_a_wrong_key_is_told_with_advice(tmp_path: Path) -> None:
    with run_here(tmp_path / "run") as here:
        contact = Invite.from_text(here["invite"]).contact
        wrong = Invite.to(contact).to_text()
        (told,) = [
            f for f in found(here["address"], "--invite", wrong, "--patience-s", 1, code=1).values() if f["advice"]
        ]
    assert told["what"] == f"the way to {here['address']}"
    assert told["found"] == "it refused our key"
    assert (
        told["advice"]
        == "the run does not know this key, or its invite was revoked: ask there for its present join line"
    )
