"""Scenario files for tests."""

from __future__ import annotations

from pathlib import Path

GROUP = '[[groups]]\npeers = 4\nlink = "10mbit,40ms"\n'


def write(folder: Path, text: str, name: str = "my.toml") -> Path:
    file = folder / name
    file.write_text(text)
    return file
