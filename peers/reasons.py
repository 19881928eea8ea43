"""The cause of a failed operation on a file, in words that fit into the middle of an error line."""

from __future__ import annotations


def reason(error: BaseException) -> str:
    """The cause of `error`, without the error number and the path, which the line around it has already."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "not enough memory"
    why = " ".join(str(error).split()) or type(error).__name__
    return f"{why[:1].lower()}{why[1:300]}"
