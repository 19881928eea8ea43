"""The file to which one peer appends its records, one JSON line each."""

from __future__ import annotations

from collections import deque
from io import FileIO
from pathlib import Path
from typing import Self

from .columns import ROUNDS, Columns
from .records import EventRecord, Header, Record
from .run import peer_file

_WAITING_MAX = 10_000
"""Most lines that are kept until they can be written; beyond this the oldest are dropped."""


def line_of(record: Record) -> bytes:
    """The record's line in the file, as bytes, with the newline."""
    return record.to_json().encode("ascii") + b"\n"


class RecordFile:
    """Appends whole lines to one peer's file: a header with the conversation's `columns`, then records. The file is
    opened at once, its folder is made, and a last line that a kill left incomplete is removed. Lines that cannot be
    written, e.g. on a full disk, raise no error; they are retried with the next record. At most 10,000 lines wait;
    beyond that the oldest are dropped."""

    def __init__(self, folder: Path, peer: str, columns: Columns = ROUNDS) -> None:
        self._path, self._peer = peer_file(folder, peer), peer
        self._file: FileIO | None = None
        self._header = Header(columns=columns).to_json().encode("ascii") + b"\n"
        """Empty once there is a record: a file without records stays empty."""
        self._torn, self._waiting = b"", deque[bytes](maxlen=_WAITING_MAX)
        """The rest of a partly written line, and the lines after it."""
        self._failed = False
        self._write()

    def append(self, record: Record) -> EventRecord | None:
        """Write one record to the operating system, so that it outlives the process. When writing begins to fail,
        returns an event that says so, for the caller to show; it is written to the file, too, as soon as that works
        again. Else None."""
        self._torn, self._header = self._torn or self._header, b""
        self._waiting.append(line_of(record))
        error, failed_before = self._write(), self._failed
        self._failed = error is not None
        if error is None or failed_before:
            return None
        why = f"cannot write {self._path}: {error.strerror or error}; it is tried again with each record"
        event = EventRecord(peer=self._peer, time_s=record.time_s, event="records_failed", why=why)
        self._waiting.append(line_of(event))
        return event

    def _write(self) -> OSError | None:
        try:
            file = self._file or self._open()
            while self._torn or self._waiting:
                self._torn = self._torn or self._waiting.popleft()
                self._torn = self._torn[file.write(self._torn) :]
        except OSError as error:
            return error
        return None

    def _open(self) -> FileIO:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0)
            file.truncate(sum(len(text) for text in file if text.endswith(b"\n")))
        self._file = FileIO(self._path, "ab")
        return self._file

    def close(self) -> None:
        """Try once more to write the waiting lines, and close the file. Lines that still cannot be written are lost,
        without an error. The file is opened again for a record after that."""
        if self._torn or self._waiting:
            self._write()
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
