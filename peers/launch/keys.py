"""Key files, lists of keys, and invites. A peer is identified by its key pair: any process that has the secret half can
act as this peer."""

from __future__ import annotations

import base64
import binascii
import contextlib
import hashlib
import os
import re
import secrets
import shlex
import stat
from dataclasses import dataclass, field
from pathlib import Path

from ...protocols.zeromq.transport import KeyPair
from ..reasons import reason

_KEY_CHARS = 64
_KEY_FILE_BYTES_MAX = 1024
_AUTHORIZED_BYTES_MAX = 16 << 20
_HEX = re.compile(r"[0-9a-fA-F]*")
_INVITE_VERSION = b"\x02"  # also keeps the text from beginning with a dash, like an option
_SECRET_BYTES = 16
"""128 bits, the strength of a CURVE key: the guest key derived from them is as hard to guess as any."""
_CHECK_BYTES = 2
_INVITE_LETTERS, _FORMER_INVITE_LETTERS = (1 + 32 + _SECRET_BYTES + _CHECK_BYTES) * 4 // 3, 92


class KeyFileError(ValueError):
    """A key file or a list of keys cannot be used. The text is one line that says what to do."""


class InviteError(ValueError):
    """A text is not a valid invite. The message is one line for the user."""


def write_key(path: Path) -> KeyPair:
    """Make a new key pair, write its secret half to `path`.key, readable only by its owner from the first byte on, and
    its public half to `path`.pub, and return it.

    Raises KeyFileError, also when one of the two files exists, because a key is never overwritten, or when `path`
    itself ends in .key or .pub. No file of the new key is then left behind.
    """
    keys, name = KeyPair.new(), path.name
    if not name or name.endswith((".key", ".pub")):
        raise KeyFileError(f"{str(path)!r}: give a name without an ending; .key and .pub are added to it")
    secret, public = path.parent / f"{name}.key", path.parent / f"{name}.pub"
    _create(secret, keys.secret, 0o600)
    try:
        _create(public, keys.public, 0o644)
    except BaseException:
        secret.unlink()
        raise
    return keys


def read_key(path: Path) -> KeyPair:
    """The key pair whose secret half is in `path`. Raises KeyFileError, also when others can read or change the
    file."""
    try:
        raw, mode = _read(path, _KEY_FILE_BYTES_MAX, "key file")
    except KeyFileError as error:
        if path.parent.is_dir() and not os.path.lexists(path):
            made = path.with_name(path.name.removesuffix(".key"))
            raise KeyFileError(f"{error}; make {made}.key by: samovar keys {shlex.quote(str(made))}") from None
        raise
    if path.name.endswith(".pub"):
        raise KeyFileError(f"{path} is the public half of a key: give the .key file")
    if mode & 0o077:
        raise KeyFileError(f"key file {path} can be read or changed by others: run chmod 600 {path}")
    text = raw.decode("ascii", "replace").strip()
    problem = _problem(text)
    if problem:
        raise KeyFileError(f"key file {path} {problem}")
    return KeyPair.of_secret(text.lower())


def read_authorized(path: Path) -> frozenset[str]:
    """The public keys listed in `path`, one a line; # begins a comment. Raises KeyFileError, which names the line that
    holds no key; also when the list is empty, or anyone can change the file."""
    raw, mode = _read(path, _AUTHORIZED_BYTES_MAX, "list of keys")
    if mode & 0o002:
        raise KeyFileError(f"list of keys {path} can be changed by anyone: run chmod o-w {path}")
    keys: set[str] = set()
    for number, line in enumerate(raw.decode("utf-8-sig", "replace").split("\n"), 1):
        text = line.partition("#")[0].strip()
        problem = _problem(text) if text else None
        if problem:
            raise KeyFileError(f"{path}, line {number}: {problem}")
        if text:
            keys.add(text.lower())
    if not keys:
        raise KeyFileError(f"list of keys {path} holds no key: nobody could join")
    return frozenset(keys)


@dataclass(frozen=True, slots=True)
class Invite:
    """The credentials with which a newcomer joins a run. `contact`: public key of the peer to be dialled; `secret`: 32
    hexadecimal characters, from which the guest key is derived. Anyone who knows the invite may join. Raises
    InviteError when one of the two is malformed."""

    contact: str
    secret: str = field(repr=False)

    def __post_init__(self) -> None:
        if problem := _problem(self.contact):
            raise InviteError(f"no invite can be made of a key that {problem}")
        if len(self.secret) != 2 * _SECRET_BYTES or not _HEX.fullmatch(self.secret):
            raise InviteError(f"no invite can be made of a secret that has not {2 * _SECRET_BYTES} characters, 0 to f")

    @classmethod
    def to(cls, contact: str) -> Invite:
        """A new invite to the peer with the public key `contact`, with a new secret. Raises InviteError when `contact`
        is no key."""
        return cls(contact, secrets.token_hex(_SECRET_BYTES))

    @property
    def guest(self) -> KeyPair:
        """The guest key pair, derived from the secret. It allows a handshake with the run's peers."""
        made = hashlib.blake2b(bytes.fromhex(self.secret), digest_size=32, person=b"samovar guest")
        return KeyPair.of_secret(made.hexdigest())

    def to_text(self) -> str:
        """The invite as one word that is safe in a shell, a URL and a mail. A checksum detects damage."""
        body = _INVITE_VERSION + bytes.fromhex(self.contact) + bytes.fromhex(self.secret)
        return base64.urlsafe_b64encode(body + _check(body)).decode()

    @classmethod
    def from_text(cls, text: str) -> Invite:
        """The invite that `to_text` wrote; white space in `text` is ignored. Raises InviteError."""
        word = "".join(text.split())
        if re.fullmatch(rf"A[Q-Za-f][A-Za-z0-9_-]{{{_FORMER_INVITE_LETTERS - 2}}}", word):
            raise InviteError(_OTHER_VERSION)
        if re.fullmatch(rf"[A-Za-z0-9_-]{{{_INVITE_LETTERS}}}", word) is None:
            raise InviteError("this invite is damaged: copy the whole join line")
        raw = base64.urlsafe_b64decode(word)
        body, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
        if _check(body) != check:
            raise InviteError("this invite is damaged: copy the whole join line")
        if body[:1] != _INVITE_VERSION:
            raise InviteError(_OTHER_VERSION)
        return cls(body[1:33].hex(), body[33:].hex())


_OTHER_VERSION = "this invite is of another version of Samovar: run the same version on both sides"


def _check(body: bytes) -> bytes:
    return binascii.crc_hqx(body, 0xFFFF).to_bytes(_CHECK_BYTES, "big")


def _problem(text: str) -> str | None:
    """The reason why `text` is not a key, in words that follow its name; None: it is a key."""
    if not _HEX.fullmatch(text):
        return f"is no key: a key has {_KEY_CHARS} characters, 0 to 9 and a to f"
    if len(text) != _KEY_CHARS:
        return f"has {len(text)} characters, a key has {_KEY_CHARS}"
    return "is all zeros, which everybody knows" if set(text) == {"0"} else None


def _create(path: Path, text: str, mode: int) -> None:
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise KeyFileError(f"{path} exists already, and a key is never overwritten: choose another name") from None
    except (OSError, ValueError) as error:
        raise KeyFileError(f"cannot create {path}: {reason(error)}") from None
    try:
        with open(number, "wb") as file:
            file.write(f"{text}\n".encode())
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with contextlib.suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise KeyFileError(f"cannot write {path}: {reason(error)}") from None
        raise


def _read(path: Path, bytes_max: int, what: str) -> tuple[bytes, int]:
    """The bytes and the mode of a file; if `path` is a symbolic link, the mode of the file that it leads to. Raises
    KeyFileError. `what`: the kind of file, for the error."""
    try:
        # Without O_NONBLOCK, opening a pipe would wait for its writer.
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
            mode = os.fstat(file.fileno()).st_mode
            raw = file.read(bytes_max + 1) if stat.S_ISREG(mode) else b""
    except (OSError, ValueError) as error:
        raise KeyFileError(f"cannot read {what} {path}: {reason(error)}") from None
    if not stat.S_ISREG(mode):
        raise KeyFileError(f"{what} {path} is not a file")
    if len(raw) > bytes_max:
        raise KeyFileError(f"{what} {path} is larger than {bytes_max} bytes")
    return raw, mode
