"""The cause of a failed operation on a file, as words for the middle of a line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The operating system's text, without the error number and the path, which the line around it has already."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "not enough memory"
    why = " ".join(str(error).split()) or type(error).__name__
    return f"{why[:1].lower()}{why[1:300]}"
