"""Reasons: why something could not be done with a file, in words that stand amid a line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """As the operating system tells it, without a number and the path, which the line has already."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "not enough memory"
    why = " ".join(str(error).split()) or type(error).__name__
    return f"{why[:1].lower()}{why[1:300]}"
