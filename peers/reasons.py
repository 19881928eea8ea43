"""Words that fit into the middle of an error line: the cause of a failed operation on a file, and a kind of value."""

from __future__ import annotations


def article(name: str) -> str:
    """`name` with its indefinite article: 'an int', 'a Tensor'."""
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def reason(error: BaseException) -> str:
    """The cause of `error` in words, with a small first letter; of most errors their text, cut to 300 characters, or
    the type's name if they have none. Of an OSError it lacks the error number and the path, which the line around it
    has already."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:1].lower() + error.strerror[1:]
    if isinstance(error, MemoryError):
        return "not enough memory"
    why = " ".join(str(error).split()) or type(error).__name__
    return f"{why[:1].lower()}{why[1:300]}"
