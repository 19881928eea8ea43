"""A secret key is only its owner's from the first byte on, and a spoiled key, list or invite is told in one line."""

import base64
import binascii
import errno
import os
import random
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from samovar.peers.launch.join_target import JoinTarget, own_name
from samovar.peers.launch.keys import Invite, InviteError, KeyFileError, read_authorized, read_key, write_key
from samovar.peers.run_settings.settings import Settings
from samovar.protocols.zeromq.transport import KeyPair

PAIR = KeyPair.of_secret("0123456789abcdef" * 4)
OTHER = KeyPair.of_secret("fedcba9876543210" * 4)


@pytest.fixture(autouse=True)
def _generous_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def key_file(path: Path, content: bytes, bits: int = 0o600) -> Path:
    path.write_bytes(content)
    path.chmod(bits)
    return path


def refused(read, path: Path) -> str:
    with pytest.raises(KeyFileError) as error:
        read(path)
    assert "\n" not in str(error.value)
    assert PAIR.secret not in str(error.value)
    return str(error.value)


def test_a_key_that_is_written_can_be_read_by_its_owner_only(tmp_path: Path) -> None:
    pair = write_key(tmp_path / "alice.at.home")
    secret, public = tmp_path / "alice.at.home.key", tmp_path / "alice.at.home.pub"
    assert read_key(secret) == pair
    assert read_authorized(public) == {pair.public}
    assert (mode(secret), mode(public)) == (0o600, 0o644)
    assert pair.secret not in repr(pair)


def test_no_other_user_can_read_a_key_even_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, real = [], os.open

    def opening(path: Path, *args: int) -> int:
        number = real(path, *args)
        seen.append((Path(path).name, stat.S_IMODE(os.fstat(number).st_mode), os.fstat(number).st_size))
        return number

    monkeypatch.setattr(os, "open", opening)
    write_key(tmp_path / "alice")
    assert seen == [("alice.key", 0o600, 0), ("alice.pub", 0o644, 0)]


@pytest.mark.parametrize("ending", [".key", ".pub"])
def test_a_key_is_never_overwritten(tmp_path: Path, ending: str) -> None:
    for there in (tmp_path / f"file{ending}", tmp_path / f"folder{ending}", tmp_path / f"link{ending}"):
        if there.stem == "file":
            there.write_text("mine")
        elif there.stem == "folder":
            there.mkdir()
        else:
            there.symlink_to(tmp_path / "nowhere")
        said = refused(write_key, tmp_path / there.stem)
        assert said == f"{there} exists already, and a key is never overwritten: choose another name"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"{name}{ending}" for name in ("file", "folder", "link")
    ]
    assert (tmp_path / f"file{ending}").read_text() == "mine"


@pytest.mark.parametrize("fail_at", [1, 2])
def test_a_full_disk_leaves_no_half_of_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fail_at: int) -> None:
    calls = iter(range(1, 10))

    def fsync(file: int) -> None:
        if next(calls) == fail_at:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    assert refused(write_key, tmp_path / "alice").endswith(": no space left on device")
    assert not list(tmp_path.iterdir())


def test_places_where_no_key_can_be_are_told(tmp_path: Path) -> None:
    assert refused(write_key, tmp_path / "none" / "alice").endswith("alice.key: no such file or directory")
    assert ": embedded null " in refused(write_key, tmp_path / "a\0b")  # byte, or character
    for path in (Path(), tmp_path / "alice.key", tmp_path / "alice.pub"):
        assert refused(write_key, path).endswith("give a name without an ending; .key and .pub are added to it")
    assert not list(tmp_path.iterdir())


def test_white_space_and_capitals_around_a_key_do_not_matter(tmp_path: Path) -> None:
    for content in (PAIR.secret, f"\r\n  {PAIR.secret.upper()}\t\r\n"):
        assert read_key(key_file(tmp_path / "k", content.encode())) == PAIR
    (tmp_path / "link").symlink_to(tmp_path / "k")
    assert read_key(tmp_path / "link") == PAIR


@pytest.mark.parametrize("bits", [0o640, 0o604, 0o660, 0o602, 0o610, 0o644, 0o777])
def test_a_key_that_others_can_read_is_refused_also_through_a_link(tmp_path: Path, bits: int) -> None:
    key = key_file(tmp_path / "k", PAIR.secret.encode(), bits)
    assert refused(read_key, key) == f"key file {key} can be read or changed by others: run chmod 600 {key}"
    (tmp_path / "link").symlink_to(key)
    assert "can be read or changed by others" in refused(read_key, tmp_path / "link")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "has 0 characters, a key has 64"),
        (b"\n", "has 0 characters, a key has 64"),
        (b"a" * 39, "has 39 characters, a key has 64"),
        (b"a" * 41, "has 41 characters, a key has 64"),
        (b"a" * 65, "has 65 characters, a key has 64"),
        (b"a" * 63 + b"g", "is no key: a key has 64 characters, 0 to 9 and a to f"),
        (b"a" * 32 + b" " + b"a" * 31, "is no key: "),
        (b"a" * 32 + b"\n" + b"a" * 32, "is no key: "),
        (b"\xff" * 64, "is no key: "),
        ("٣".encode() * 64, "is no key: "),
        (b"\0" * 64, "is no key: "),
        (b"rq:rM>}U?@Lns47E1%kR.o@n%FcmmsL/@{H8]yf7", "is no key: "),
        (b"0" * 64, "is all zeros, which everybody knows"),
        (b"a" * 5000, "is larger than 1024 bytes"),
    ],
)
def test_bytes_that_are_no_key_are_told(tmp_path: Path, content: bytes, said: str) -> None:
    assert said in refused(read_key, key_file(tmp_path / "k", content))


def test_a_path_that_is_no_key_file_is_told(tmp_path: Path) -> None:
    lacking = f"cannot read key file {tmp_path / 'k.key'}: no such file or directory"
    advice = f"make {tmp_path / 'k.key'} by: samovar keys {tmp_path / 'k'}"
    assert refused(read_key, tmp_path / "k.key") == f"{lacking}; {advice}"
    assert refused(read_key, tmp_path / "no/k").endswith("no/k: no such file or directory")
    assert refused(read_key, tmp_path).endswith(": is a directory")
    os.mkfifo(tmp_path / "pipe")
    assert refused(read_key, tmp_path / "pipe").endswith("is not a file")
    assert "embedded null byte" in refused(read_key, tmp_path / "a\0b")
    public = key_file(tmp_path / "k.pub", PAIR.public.encode())
    assert refused(read_key, public) == f"{public} is the public half of a key: give the .key file"


LIST = f"""\ufeff# those who may join
{PAIR.public}   # alice
\t{OTHER.public.upper()}\r
\r

{PAIR.public}
#{"0" * 64}"""


def test_a_list_of_keys_may_have_comments_and_be_written_anywhere(tmp_path: Path) -> None:
    assert read_authorized(key_file(tmp_path / "list", LIST.encode(), 0o644)) == {PAIR.public, OTHER.public}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("alice", "line 8: is no key: a key has 64 characters, 0 to 9 and a to f"),
        (f"{PAIR.public} {OTHER.public}", "line 8: is no key"),
        ("ab", "line 8: has 2 characters, a key has 64"),
        ("0" * 64, "line 8: is all zeros"),
        ("\xff", "line 8: is no key"),
    ],
)
def test_a_fault_in_a_list_is_told_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    file = key_file(tmp_path / "list", f"{LIST}\n{line}".encode("utf-8", "replace"))
    assert refused(read_authorized, file).startswith(f"{file}, {said}")


def test_an_unusable_list_of_keys_is_told(tmp_path: Path) -> None:
    file = key_file(tmp_path / "list", b"# nobody\n")
    assert refused(read_authorized, file) == f"list of keys {file} holds no key: nobody could join"
    file.write_text(LIST)
    file.chmod(0o666)
    assert refused(read_authorized, file) == f"list of keys {file} can be changed by anyone: run chmod o-w {file}"
    assert "no such file or directory" in refused(read_authorized, tmp_path / "none")
    with file.open("wb") as big:
        big.truncate(100 << 20)
    assert "larger than" in refused(read_authorized, file)


hexes = st.binary(min_size=32, max_size=32).filter(any).map(bytes.hex)


@given(hexes, st.binary(min_size=16, max_size=16).map(bytes.hex))
def test_an_invite_survives_being_text(contact: str, secret: str) -> None:
    invite = Invite(contact, secret)
    text = invite.to_text()
    assert text.isascii()
    assert len(text) == 68
    assert text[0] == "A"  # never a dash, which would make it an option
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    assert Invite.from_text(f" {text[:40]}\r\n\t{text[40:]}\n") == invite
    assert "secret" not in repr(invite)


def damaged(text: str) -> None:
    with pytest.raises(InviteError, match=r"^this invite is damaged: copy the whole join line$"):
        Invite.from_text(text)


def test_an_invite_with_any_character_changed_lost_or_swapped_is_refused() -> None:
    text, rng = Invite(PAIR.public, OTHER.secret[:32]).to_text(), random.Random(7)
    for at in range(len(text)):
        for char in {*"Aa0-_ +/=.\0ü", rng.choice("bcdefgh")} - {text[at]}:
            damaged(text[:at] + char + text[at + 1 :])
        damaged(text[:at])
        damaged(text[:at] + text[at + 1 :])
        if text[at : at + 1] != text[at + 1 : at + 2]:
            damaged(text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :] + ("" if at + 1 < len(text) else "x"))
    for odd in ("", text + text, text + "A", text.swapcase(), text[::-1], PAIR.public, "tcp://192.0.2.7:4000"):
        damaged(odd)


@given(st.text())
def test_no_text_breaks_the_reading_of_an_invite(text: str) -> None:
    damaged(text)


def test_an_invite_of_another_version_is_told() -> None:
    former, later = b"\1" + random.Random(7).randbytes(64), b"\3" + bytes(48)
    checked = (
        former + zlib.crc32(former).to_bytes(4, "big"),
        later + binascii.crc_hqx(later, 0xFFFF).to_bytes(2, "big"),
    )
    for raw in checked:
        with pytest.raises(InviteError, match="another version"):
            Invite.from_text(base64.urlsafe_b64encode(raw).decode())


def test_each_invite_has_a_guest_key_of_its_own_which_its_secret_alone_makes() -> None:
    one, other = Invite.to(PAIR.public), Invite.to(PAIR.public)
    assert one.guest != other.guest
    assert one.guest == Invite(OTHER.public, one.secret).guest


@pytest.mark.parametrize("bad", ["", "0" * 64, "g" * 64, "ab"])
def test_no_invite_is_made_of_a_bad_key(bad: str) -> None:
    for contact, secret in ((bad, OTHER.secret[:32]), (PAIR.public, bad)):
        with pytest.raises(InviteError, match="no invite can be made of a"):
            Invite(contact, secret)


def test_a_peer_with_a_key_of_its_own_has_the_same_name_in_each_life(tmp_path: Path) -> None:
    write_key(tmp_path / "lap")
    settings, invite = Settings(key=str(tmp_path / "lap.key")), Invite(PAIR.public, "00" * 16).to_text()
    lives = [JoinTarget.of("tcp://192.0.2.7:4000", invite, None, settings).lasting(settings) for _ in range(2)]
    assert lives[0] is not None
    assert own_name(None, lives[0]) == own_name(None, lives[1])
    assert own_name(None, lives[0]).endswith(f"-{lives[0].public[:6]}")
    assert own_name("erin", lives[0]) == "erin"
    passing = JoinTarget.of("tcp://192.0.2.7:4000", invite, None, Settings()).lasting(Settings())
    assert own_name(None, passing).endswith(f"-{os.getpid()}")
