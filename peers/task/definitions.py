"""Definitions of a task file that a run's settings ask for by name, such as a server function.

All peers must have the same. They compare a hash of the definition's text, together with the text of all that it uses
of its file. Imported modules are not hashed.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from .constants import Agreement
from .syntax import TaskError, parsed

_ALIKE = 0.8
"""How alike two names are at least, by `difflib`, of which one may be the other misspelt."""


@dataclass(frozen=True, slots=True)
class Definition:
    """One definition of a task file. `value`: the object; `digest`: hash of its text, and of the text of all that it
    uses of its file."""

    value: object
    digest: str


def defined(path: Path, names: Mapping[str, object], asked: Mapping[str, str]) -> dict[str, Definition]:
    """The definitions of the file `path` that are asked for, by name. `asked`: by name, the reason why the definition
    is needed, for the error. `names`: the global names of the imported file, with their values. Raises TaskError for a
    name that the file does not define."""
    for name, why in asked.items():
        if name not in names:
            raise _lacks(path, name, why)
    return {name: Definition(names[name], _digest(path, name)) for name in asked}


def check_defined(path: Path, asked: Mapping[str, str]) -> None:
    """Raises TaskError when the file lacks one of the names in `asked`, as far as can be seen without running it. The
    values of `asked` say why the name is needed, for the error."""
    bound = [_bound(one) for one in parsed(path).body] if asked else []
    for name, why in asked.items():
        if not any(name in names or "*" in names for names in bound):
            raise _lacks(path, name, why)


def misspelt(path: Path, known: Collection[str]) -> dict[str, str]:
    """The functions of the file `path` that look like misspelt ones of the `known` names: name -> the known name. They
    stand at its top level, undecorated, nothing in the file uses them, and the file has nothing of the known name."""
    body = parsed(path).body
    bound, used = set().union(*map(_bound, body)), set().union(*map(_used, body))
    names = [one.name for one in body if isinstance(one, ast.FunctionDef) and not one.decorator_list]
    missing = [name for name in known if name not in bound]
    near = {
        name: get_close_matches(name, missing, 1, _ALIKE) for name in names if name not in known and name not in used
    }
    return {name: found[0] for name, found in near.items() if found}


def agreed(agreement: Agreement, definitions: Mapping[str, Definition]) -> Agreement:
    """`agreement`, extended so that all peers must also have equal `definitions`: its digest and its words cover
    them."""
    if not definitions:
        return agreement
    text = "".join(f" {name} {one.digest}" for name, one in definitions.items())
    digest = hashlib.blake2b(f"{agreement.digest}{text}".encode(), digest_size=16).hexdigest()
    hashes = " and ".join(f"{name} of hash {one.digest[:6]}" for name, one in definitions.items())
    return Agreement(digest, f"{agreement.words}, {hashes}")


def _lacks(path: Path, name: str, why: str) -> TaskError:
    return TaskError(f"{path}: {why}, and this file defines no {name}")


def _digest(path: Path, name: str) -> str:
    """Hash of the statements of the file that bind `name`, and of those that bind what these use, and so on."""
    statements, lines = parsed(path).body, path.read_bytes().splitlines()
    found, waiting = set[int](), [name]
    while waiting:
        wanted = waiting.pop()
        for place, statement in enumerate(statements):
            if place not in found and wanted in _bound(statement):
                found.add(place)
                waiting += _used(statement)
    whole = hashlib.blake2b(digest_size=16)
    for place in sorted(found):
        whole.update(b"\n".join(_lines(statements[place], lines)) + b"\n")
    return whole.hexdigest()


def _lines(statement: ast.stmt, lines: list[bytes]) -> list[bytes]:
    first = min([statement.lineno, *(one.lineno for one in getattr(statement, "decorator_list", ()))])
    return lines[first - 1 : statement.end_lineno]


def _bound(statement: ast.stmt) -> set[str]:
    """The global names that a top-level statement binds; "*": those of a module that it imports."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {statement.name}
    return {name for node in ast.walk(statement) for name in _names(node)}


def _names(node: ast.AST) -> Iterable[str]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [node.id]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.alias):
        return [node.asname or node.name.partition(".")[0]]
    return []


def _used(statement: ast.stmt) -> set[str]:
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
