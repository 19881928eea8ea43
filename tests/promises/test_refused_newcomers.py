"""A newcomer that a run refuses, or that finds no run, is told the reason in one line."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from bad_files import FILES, INVITE, complaint, folder_of_files, nothing_is_left  # noqa: F401
from click.testing import CliRunner
from live import Live, python, run_here, verb
from tiers import soaked

from samovar.__main__ import main
from samovar.peers.launch.join_target import JoinFailed, JoinTarget
from samovar.peers.launch.keys import Invite
from samovar.peers.records.run import read_run
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.wire import frames as wire
from samovar.protocols.zeromq.transport import KeyPair


def wrong_secret(here: dict[str, Any]) -> list[str]:
    return ["--invite", Invite.to(Invite.from_text(here["invite"]).contact).to_text()]


def wrong_contact(here: dict[str, Any]) -> list[str]:
    return ["--invite", Invite(KeyPair.new().public, Invite.from_text(here["invite"]).secret).to_text()]


def wrong_key(here: dict[str, Any]) -> list[str]:
    assert verb("keys", "own").exit_code == 0
    return ["--key", "own.key", "--peer-key", Invite.from_text(here["invite"]).contact]


def without_encryption(here: dict[str, Any]) -> list[str]:
    return ["--insecure", "--peer-key", Invite.from_text(here["invite"]).contact]


UNKNOWN = "it refused our key; the run does not know this key, or its invite was revoked"


def test_an_invite_may_come_from_stdin_a_file_or_a_variable(folder: Path) -> None:
    """Where others on the machine do not see it in the list of processes; here it is damaged."""
    (folder / "invite.txt").write_text(INVITE[:-1] + "\n")
    task = [str(folder / "good.py")]
    for arguments, way in (
        (["--invite", "-"], {"input": INVITE[:-1] + "\n"}),
        (["--invite", str(folder / "invite.txt")], {}),
        ([], {"env": {"SAMOVAR_INVITE": INVITE[:-1]}}),
    ):
        ended = CliRunner().invoke(main, ["join", "tcp://h:4", *task, *arguments], **way)  # type: ignore[arg-type]
        assert ended.exit_code == 2
        assert "this invite is damaged" in ended.stderr


ANOTHER_RUN = "another run than that of this join line is there now, or only one side is --insecure"


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (wrong_secret, UNKNOWN),
        soaked(wrong_key, UNKNOWN),
        soaked(wrong_contact, f"{ANOTHER_RUN} .*; ask there for its present join line"),
        (without_encryption, f"{ANOTHER_RUN} .*; ask there for its present join line"),
    ],
)
def test_a_joiner_with_a_wrong_key_is_told_so(folder: Path, way: Callable[..., list[str]], said: str) -> None:
    with run_here(folder / "here") as here:
        result = verb("join", here["address"], "good.py", *way(here), "--patience-s", 1, "--run", "there", "--json")
        assert re.match(rf"cannot join at {here['address']}: {said}", complaint(result))
    assert not (folder / "there").exists()


def test_a_key_that_the_run_knows_needs_no_invite_and_so_comes_in_by_an_old_join_line(folder: Path) -> None:
    """Whoever retypes the line by which it came, after samovar invite --new."""
    assert verb("keys", "own").exit_code == 0
    settings = Settings(key="own.key", patience_s=3.0, listen="tcp://127.0.0.1:0")

    async def name_of_run(here: dict[str, Any], settings: Settings) -> str:
        target = JoinTarget.of(here["address"], wrong_secret(here)[1], None, settings)
        endpoint = await target.enter(settings)
        try:
            return (await target.ask_run(endpoint)).run
        finally:
            endpoint.abort()

    with run_here(folder / "here", authorized="own.pub") as here:
        assert asyncio.run(name_of_run(here, settings))
        with pytest.raises(JoinFailed, match=f"{UNKNOWN}: ask there for its present join line"):
            asyncio.run(name_of_run(here, settings.changed(key=None)))
        assert verb("keys", "another").exit_code == 0
        with pytest.raises(JoinFailed, match=f"{UNKNOWN}: ask there for its present join line"):
            asyncio.run(name_of_run(here, settings.changed(key="another.key")))


def test_an_address_where_no_peer_listens_cannot_be_joined(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unheard.getsockname()[1]}"
        said = complaint(verb("join", address, "good.py", "--invite", INVITE, "--patience-s", 0.5))
        assert said == (
            f"cannot join at {address}: not heard of for 0.5 s: nobody listens; "
            "is the run still there? Ask for its present join line"
        )
        unheard.listen()
        monkeypatch.setattr("samovar.peers.launch.join_target._TRY_FOR", 2)
        said = complaint(verb("join", address, "good.py", "--invite", INVITE, "--patience-s", 0.5))
        assert said.startswith(f"cannot join at {address}: not heard of for 0.5 s: it is there, but does not answer")
        assert "try again" in said
        assert "firewall" not in said


def test_a_host_that_has_no_address_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody_knows(*_: object, **__: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", nobody_knows)
    said = complaint(verb("join", "tcp://teapot.invalid:4", "good.py", "--invite", INVITE, "--patience-s", 0.5))
    assert "a host of the name teapot.invalid is not known here; look at how it is spelt" in said


def test_a_newcomer_with_another_layout_is_refused_and_the_run_goes_on(folder: Path) -> None:
    (folder / "other.py").write_text(FILES["good.py"].replace("Linear(2, 1)", "Linear(2, 3)"))
    join = ["--run", "there", "--name", "other", "--quiet"]
    with run_here(folder / "here") as here:
        way = ["join", here["address"], "other.py", "--invite", here["invite"], *join]
        for _ in range(2):  # and who is refused may try again, in the same folder
            assert complaint(verb(*way)) == (
                "the models have different layouts: 9 elements in 2 tensors (peer other), "
                "3 elements in 2 tensors (peer 0); is it the same script?"
            )
    assert {event.event for event in read_run(folder / "here").events} == {"started"}


def test_ctrl_c_ends_a_newcomer_that_waits_for_an_answer(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        run = Live(folder, "join", address, "good.py", "--invite", INVITE, "--patience-s", 10_000, "--json")
        call, _ = silent.accept()
        with call:
            run.signal(signal.SIGINT)
            ended = run.end()
    assert (ended.code, ended.out, ended.left) == (130, "", [])
    assert ended.err == "stopped before this peer was in the run; to join again, give the same command\n"


OTHER_VERSION = """
import samovar.protocols.wire.frames as wire
wire.VERSION += 1
from samovar.__main__ import main
main()
"""


def test_a_peer_of_another_protocol_version_is_told_to_install_the_same(folder: Path) -> None:
    with run_here(folder / "here") as here:
        way = ["join", here["address"], "good.py", "--invite", here["invite"], "--json"]
        done = python("-c", OTHER_VERSION, *way)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr == (
        f"samovar: cannot join at {here['address']}: speaks protocol version {wire.VERSION}, this side speaks "
        f"{wire.VERSION + 1}; "
        "install the same samovar on both sides\n"
    )
