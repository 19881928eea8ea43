"""Functions and classes of a notebook or script as the source of a task file, with everything that they use.

A peer is another process, perhaps on another machine, so it gets source and no objects. A definition is looked up by
its place in the file or cell. The global names that it uses are collected in turn: definitions as source; modules, and
objects defined in modules, as imports; plain values as literals.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import math
import pathlib
import symtable
import sys
import sysconfig
import textwrap
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from ..task.task import TaskError

LITERAL_LETTERS_MAX = 100_000
"""The length, in characters, of the longest literal that is written into a task file. A longer one raises TaskError."""
_MAIN = "__main__"


class Source:
    """The source of a task file, which grows with each `add`. `namespace`: the global names of the notebook or script,
    by which its definitions refer to each other."""

    def __init__(self, namespace: Mapping[str, object]) -> None:
        self._namespace = namespace
        self._imports: dict[str, str] = {}
        self._paths: dict[str, None] = {}
        self._definitions: dict[str, str] = {}
        self._begun: set[str] = set()

    def text(self, title: str, *last: str) -> str:
        """The text of the task file: imports, then the definitions that were added, then the lines `last`. `title`: the
        file's docstring."""
        paths = [f"sys.path.append({path!r})" for path in self._paths]
        head = [f'"""{title}"""', "from __future__ import annotations"]
        parts = [*head, *(["import sys", *paths] if paths else []), *self._imports.values()]
        return "\n".join([*parts, "", *self._definitions.values(), *last, ""])

    def add(self, name: str, value: object, user: str) -> None:
        """Add the source that binds the global name `name` to `value`, and the source of all that `value` uses. Does
        nothing if `name` was passed before, also if that failed. `user`: the function or class that uses it, in words
        for a message. Raises TaskError when the value, or one that it uses, cannot be sent as source, or is a literal
        of more than `LITERAL_LETTERS_MAX` letters; the source is incomplete then."""
        if name in self._begun:
            return
        self._begun.add(name)
        if (imported := self._imported(name, value)) is not None:
            self._imports[name] = imported
        elif isinstance(value, type | types.FunctionType) or hasattr(value, "__wrapped__"):
            self._define(name, value)
        elif (literal := _literal(value)) is None:
            raise TaskError(
                f"{name} (a {type(value).__name__}), used by {user}, cannot be sent to the peers as source: make it "
                f"inside {user}, or in a function that it calls; or write the task to a file"
            )
        elif len(literal) > LITERAL_LETTERS_MAX:
            raise TaskError(f"{name}, used by {user}, is too long to be written down ({len(literal):,} characters)")
        else:
            module = literal.partition(".")[0]  # of torch.float32 or pathlib.Path(...)
            self._imports |= {module: f"import {module}"} if module in ("torch", "pathlib") else {}
            self._definitions[name] = f"{name} = {literal}\n"

    def _define(self, name: str, value: object) -> None:
        own = getattr(value, "__name__", name)
        user = f"class {own}" if isinstance(value, type) else f"{own}()"
        tree, text = _definition(value, user)
        for used in _globals_of(tree):
            if used in self._namespace and used != own:
                self.add(used, self._namespace[used], user)
        alias = "" if own == name or isinstance(tree, ast.Assign) else f"{name} = {own}\n"
        self._definitions[name] = f"{text}\n{alias}"

    def _imported(self, name: str, value: object) -> str | None:
        """The statement that imports `value` as `name`; None when no module but the main one has it."""
        if isinstance(value, types.ModuleType):
            self._find(value)
            return f"import {value.__name__} as {name}"
        if not (isinstance(value, type) or callable(value)):
            return None
        own, home = getattr(value, "__qualname__", name), getattr(value, "__module__", None)
        if home == _MAIN:
            return None
        if (module := sys.modules.get(home or "")) is None or getattr(module, own, None) is not value:
            holders = [one for one in list(sys.modules.values()) if vars(one).get(own) is value]
            holders = [one for one in holders if one.__name__ != _MAIN]
            if not holders:
                return None
            module = min(holders, key=lambda one: len(one.__name__))
        self._find(module)
        return f"from {module.__name__} import {own}" + (f" as {name}" if own != name else "")

    def _find(self, module: types.ModuleType) -> None:
        """Note the folder from which peers can import `module`, unless all interpreters find it."""
        top = sys.modules.get(module.__name__.partition(".")[0], module)
        file = getattr(top, "__file__", None)
        if file is None:
            return
        folder = Path(file).resolve().parent
        root = folder.parent if Path(file).name == "__init__.py" else folder
        everywhere = [Path(sysconfig.get_path(of)).resolve() for of in ("stdlib", "platstdlib", "purelib", "platlib")]
        if root not in everywhere and everywhere[0] / "lib-dynload" != root:
            self._paths[str(root)] = None


def sendable(value: object) -> bool:
    """Whether `Source.add` may be tried on `value`: it can be called, or it is a plain value that can be written as a
    literal."""
    return callable(value) or _literal(value) is not None


def _definition(value: object, user: str) -> tuple[ast.stmt, str]:
    """The statement that defines `value`, a function or class of the main module, and its text. Raises TaskError when
    there is none."""
    name = getattr(value, "__name__", "")
    if "<locals>" in getattr(value, "__qualname__", ""):
        raise TaskError(f"{user} is defined inside a function: define it in a cell or file, as a global name")
    for file, line in _places(value):
        lines = linecache.getlines(file)
        try:
            found = list(_statements(ast.parse("".join(lines))))
        except SyntaxError:
            continue
        for node in reversed(found):
            first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
            if _names(node, name) and (line is None or first <= line <= (node.end_lineno or first)):
                return node, textwrap.dedent("".join(lines[first - 1 : node.end_lineno])) + "\n"
    raise TaskError(
        f"{user} has no source that could be sent to the peers (it was typed into an interpreter?): write the task to "
        "a file or a notebook"
    )


def _places(value: object) -> Iterator[tuple[str, int | None]]:
    """The files or cells in which `value` may be defined, with a line of its definition; None: any."""
    if isinstance(value, type):
        members = [getattr(one, "__func__", getattr(one, "fget", one)) for one in vars(value).values()]
        own = [one for one in members if getattr(one, "__module__", "") == _MAIN and hasattr(one, "__code__")]
        yield from ((one.__code__.co_filename, one.__code__.co_firstlineno) for one in own if one.__code__.co_filename)
        yield from ((file, None) for file in [getattr(sys.modules[_MAIN], "__file__", None)] if file)
        yield from ((cell, None) for cell in reversed(list(linecache.cache)) if "ipykernel" in cell or "<ipy" in cell)
    elif (code := getattr(inspect.unwrap(value), "__code__", None)) is not None:  # type: ignore[arg-type]
        yield code.co_filename, code.co_firstlineno


def _statements(tree: ast.AST) -> Iterator[ast.stmt]:
    """The statements outside of functions and classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.stmt):
            yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield from _statements(node)


def _names(node: ast.stmt, name: str) -> bool:
    """Whether the statement defines `name`, or a lambda by a plain assignment."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name == name
    return name == "<lambda>" and isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)


class _Unannotated(ast.NodeTransformer):
    """Removes annotations, which are never evaluated in the file that is sent."""

    def visit_arg(self, node: ast.arg) -> ast.arg:
        return ast.arg(node.arg)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is None:
            return ast.Pass()
        return ast.Assign([node.target], self.visit(node.value))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)


def _globals_of(definition: ast.stmt) -> list[str]:
    """The global names that a definition uses, in alphabetical order, but for builtins."""
    tree = ast.fix_missing_locations(_Unannotated().visit(ast.Module([definition], [])))
    found: set[str] = set()
    tables = [symtable.symtable(ast.unparse(tree), "task", "exec")]
    while tables:
        table = tables.pop()
        found |= {one.get_name() for one in table.get_symbols() if one.is_global() and one.is_referenced()}
        tables += table.get_children()
    return sorted(name for name in found if not hasattr(builtins, name))


def _literal(value: object) -> str | None:
    """The expression that evaluates to an equal value; None: there is none."""
    write: Callable[[object], str | None] = _literal
    if type(value) in (type(None), bool, int, str, bytes, complex):
        return repr(value)
    if type(value) is float:
        return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
    if isinstance(value, torch.dtype):
        return repr(value)
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, pathlib.PurePath):
        return f"pathlib.Path({str(value)!r})"
    if type(value) is dict:
        rows = [(write(key), write(item)) for key, item in value.items()]
        return None if any(None in row for row in rows) else "{" + ", ".join(f"{k}: {v}" for k, v in rows) + "}"
    if type(value) in (list, tuple, set, frozenset):
        items = [write(item) for item in value]  # type: ignore[attr-defined]
        if None in items:
            return None
        inside = ", ".join(map(str, items))
        kind = type(value).__name__
        return f"[{inside}]" if kind == "list" else f"{kind}([{inside}])"
    return None
