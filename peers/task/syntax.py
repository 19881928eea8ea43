"""A task file or script as a syntax tree, which is looked at without running the file."""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from pathlib import Path


class TaskError(ValueError):
    """The task file cannot be used. The text is one line: the file, the fault, and what to do."""


def parsed(path: Path) -> ast.Module:
    """The syntax tree of the Python file at `path`. Raises TaskError if there is no such file, or it isn't Python."""
    if not path.exists():
        raise TaskError(f"{path}: no such file")
    if not path.is_file():
        raise TaskError(f"{path}: not a file")
    try:
        return ast.parse(path.read_bytes(), str(path))
    except SyntaxError as error:
        raise TaskError(f"{path}, line {error.lineno or 1}: not Python: {error.msg}") from None
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise TaskError(f"{path}: not Python: {' '.join(str(error).split()) or type(error).__name__}") from None


def functions(tree: ast.Module) -> set[str]:
    """The top-level names that are functions (``def``, not ``async def``), or are imported by ``from ... import`` and
    may be."""
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    return names.union(alias.asname or alias.name for node in imports for alias in node.names)


def starred(tree: ast.Module) -> str:
    """The first module from which the file's top level imports all names, ``from MODULE import *``; "": none."""
    imports = (node for node in tree.body if isinstance(node, ast.ImportFrom))
    modules = [node for node in imports if any(alias.name == "*" for alias in node.names)]
    return "." * modules[0].level + (modules[0].module or "") if modules else ""


def top_level_names(tree: ast.Module) -> set[str]:
    """The names that the file's top level defines: those of `functions`, and those of plain assignments to one name
    (``A = 1``; neither ``A: int = 1`` nor ``A, B = 1, 2``)."""
    assigned = (target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets)
    return functions(tree).union(target.id for target in assigned if isinstance(target, ast.Name))


def literals(tree: ast.Module) -> dict[str, object]:
    """The values of the names that the file's top level assigns just once, to a literal (``A = {"b": 1}``)."""
    bound = (node for node in ast.walk(tree) if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load))
    names = Counter(node.id for node in bound)
    found = dict[str, object]()
    for node in [node for node in tree.body if isinstance(node, ast.Assign)]:
        for target in node.targets:
            if isinstance(target, ast.Name) and names[target.id] == 1:
                with contextlib.suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                    found[target.id] = ast.literal_eval(node.value)
    return found


def imports_samovar(tree: ast.Module) -> bool:
    """Whether the file imports the package samovar or a module of it, anywhere in it."""
    imported = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    imported += [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level]
    return any(name.partition(".")[0] == "samovar" for name in imported)


def calls_join(tree: ast.Module) -> bool:
    """Whether the file names ``samovar.join``, or imports ``join`` from samovar, anywhere in it. Whether it calls it
    isn't checked."""
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "samovar" and any(n.name == "join" for n in node.names):
            return True
        if isinstance(node, ast.Import):
            modules.update(name.asname or name.name for name in node.names if name.name == "samovar")
    joins = (node.value for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "join")
    return any(isinstance(module, ast.Name) and module.id in modules for module in joins)
