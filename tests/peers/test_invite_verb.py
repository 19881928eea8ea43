"""``samovar invite``: the run's user shows, ends and renews its invite while it goes on."""

import errno
import json
import signal
from pathlib import Path
from typing import Any

import pytest
from live import STEADY, Live, run_here, verb

from samovar.peers.launch.join_target import JoinTarget
from samovar.peers.launch.keys import Invite
from samovar.peers.launch.ways_in import WaysIn, asking
from samovar.peers.records.comings import reinvited
from samovar.peers.run_settings.settings import Settings, SettingsError
from samovar.protocols.members.invitation import Invitation
from samovar.protocols.zeromq.transport import KeyPair

TRAIN = ("train", STEADY, "--peers", 2, "--period", 8, "--run", "run", "--json", "--no-report", "--steps", 10**8)


def test_a_new_invite_lets_one_key_in_and_the_old_one_is_refused_in_one_line(tmp_path: Path) -> None:
    run = Live(tmp_path, *TRAIN, "--patience-s", 3)
    run.until(lambda: run.rounds() >= 2, "round 2")
    folder = tmp_path / "run"
    old = verb("invite", folder).stdout.strip()
    assert old == (folder / "join.txt").read_text().splitlines()[0]
    renewed = verb("invite", folder, "--new", "--invite-uses", 1)
    assert (renewed.exit_code, renewed.stderr) == (0, "")
    new = renewed.stdout.strip()
    assert new != old
    assert new == verb("invite", folder).stdout.strip() == (folder / "join.txt").read_text().splitlines()[0]
    assert (folder / "join.txt").stat().st_mode & 0o777 == (folder / "control.sock").stat().st_mode & 0o777 == 0o600

    def join(line: str, name: str, patience_s: float) -> Live:
        words = ("--json", "--run", name, "--name", name, "--patience-s", patience_s)
        return Live(tmp_path, *line.split()[1:], *words, run=name)

    third = join(new, "third", 3)
    taken_part = {"kind": "round", "members": 3}.items()
    third.until(lambda: any(taken_part <= row.items() for row in third.records("third")), "a round with the newcomer")
    ended = join(old, "old", 1).end()
    assert ended.code == 2
    assert "refused our key; the run does not know this key, or its invite was revoked" in ended.complaint
    ended = join(new, "fourth", 1).end()
    assert ended.code == 2
    assert ended.complaint.endswith(
        "this invite has been used up: 1 of 1 keys; ask for a new one: samovar invite RUN --new"
    )
    assert any(row.get("event") == "invite" for row in run.records("0"))
    assert "revoked" in verb("invite", folder, "--revoke").stdout
    assert (folder / "join.txt").read_text() == ""
    assert verb("invite", folder).exit_code == 2
    for one in (third, run):
        one.signal(signal.SIGINT)
        assert one.end().code == 130
    assert not (folder / "control.sock").exists()
    gone = verb("invite", folder)
    assert gone.exit_code == 2
    assert gone.stderr.startswith(f"samovar: {folder}: no run goes on there; ")


@pytest.mark.parametrize("new", [False, True])
async def test_before_all_peers_are_up_an_invite_is_neither_revoked_nor_told_to_be(tmp_path: Path, new: bool) -> None:
    asked: list[dict[str, Any]] = []

    async def asks(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question)
        return {"guest": invite.guest.public}

    invite = Invite.to(KeyPair.new().public)
    ways_in = WaysIn(Path("task.py"), tmp_path, invite, asks)
    assert "its invite stays as it is: try again" in (await ways_in.answer(asking(new=new)))["error"]
    assert asked == [], "a peer that was up already would have revoked it"
    ways_in.met([{"id": invite.contact, "address": "tcp://192.0.2.2:41"}])
    assert invite.to_text() in ways_in.lines[0]
    assert (await ways_in.answer(asking(new=new)))["line"]


def test_a_full_disk_leaves_the_join_lines_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def asks(question: dict[str, Any]) -> dict[str, Any]:
        return {}

    invite, write = Invite.to(KeyPair.new().public), Path.write_text
    ways_in, member = WaysIn(Path("task.py"), tmp_path, invite, asks), {"id": invite.contact, "address": "tcp://a:41"}
    assert ways_in.met([member]) == ""
    before = (tmp_path / "join.txt").read_text()

    def full(path: Path, text: str, **way: str) -> int:
        write(path, text[:100], **way)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    assert "not written down" in ways_in.met([member, member])
    assert [file.name for file in tmp_path.iterdir()] == ["join.txt"]
    assert (tmp_path / "join.txt").read_text() == before


def test_a_script_that_founds_a_run_answers_too_and_its_limits_hold(tmp_path: Path) -> None:
    folder = tmp_path / ("a long name " * 9) / "run"
    with run_here(folder, invite_uses=3, invite_for="2h") as here:
        told = json.loads(verb("invite", folder, "--json").stdout)
        assert told["keys_max"] == 3
        assert 7000 < told["seconds"] < 7200
        assert here["invite"] in told["line"]
        JoinTarget.of(here["address"], here["invite"], None, Settings())
        assert json.loads(verb("invite", folder, "--new", "--json").stdout)["seconds"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nowhere",), "nowhere: there is no such folder"),
        ((".",), ". is not a run folder, it has no settings.json"),
        ((".", "--new", "--revoke"), "--new also ends the present invite: leave out --revoke"),
        ((".", "--invite-uses", 2), "--invite-uses is for a new invite: add --new"),
        ((".", "--new", "--invite-for", "2 years"), "invite_for"),
    ],
)
def test_bad_arguments_of_invite_are_one_line(arguments: tuple[object, ...], said: str) -> None:
    ended = verb("invite", *arguments)
    assert ended.exit_code == 2
    (line,) = ended.stderr.splitlines()
    assert said in line.replace("--invite-for", "invite_for")


@pytest.mark.parametrize("span", ["90s", "45m", "45min", "2h", "7d"])
def test_a_span_of_time_is_a_number_with_its_unit(span: str) -> None:
    assert Settings(invite_for=span).invite_for == span
    for bad in (span[:-1].rstrip("mi"), f"0{span[2:] or 's'}", f"-{span}", "400d"):
        with pytest.raises(SettingsError, match="invite_for must be a time above 0"):
            Settings(invite_for=bad)


def test_each_change_of_the_invite_is_told_but_not_each_admitted_key() -> None:
    one = Invitation("g", 3, 1, 100.0)
    assert reinvited(one, Invitation("g", 3, 2, 90.0)) == ""
    assert "revoked" in reinvited(one, None)
    assert "a new one lets in 5 keys, for 60 s" in reinvited(one, Invitation("h", 5, 0, 60.0))
    for more in (Invitation("g", 4, 1, 90.0), Invitation("g", 3, 0, 90.0), Invitation("g", 3, 1, 200.0)):
        assert "changed by a member" in reinvited(one, more)
    assert "changed by a member" in reinvited(one, Invitation("g", None, 1, None))


def test_a_resumed_run_has_a_new_invite_with_the_limits_that_it_was_set_and_all_of_its_uses(tmp_path: Path) -> None:
    """All its peers have new keys, so whoever was let in before has to come by it again."""
    run = Live(tmp_path, *TRAIN, "--patience-s", 3, "--invite-uses", 1, "--invite-for", "2h")
    run.until(lambda: run.rounds() >= 2 and (run.folder / "join.txt").exists(), "round 2")
    old = (run.folder / "join.txt").read_text().splitlines()[0].split()
    third = Live(tmp_path, *old[1:], "--json", "--run", "third", "--name", "third", "--no-report", run="third")
    third.until(lambda: third.rounds() > 0, "a round of the newcomer")
    assert json.loads(verb("invite", run.folder, "--json").stdout)["keys"] == 1
    for one in (third, run):
        one.signal(signal.SIGINT)
        one.end()
    before = run.rounds()
    again = Live(tmp_path, "train", STEADY, "--resume", "run", "--invite-for", "1h", "--json")
    again.until(
        lambda: again.rounds() > before and (again.folder / "control.sock").exists(), "a round after the resume"
    )
    told = json.loads(verb("invite", again.folder, "--json").stdout)
    assert (told["keys_max"], told["keys"]) == (1, 0)
    assert 3500 < told["seconds"] < 3600
    new = Invite.from_text(told["line"].split()[-1])
    assert new.guest != Invite.from_text(old[-1]).guest
    assert new.contact != Invite.from_text(old[-1]).contact
    again.signal(signal.SIGINT)
    again.end()
