"""The modules of the library as text and as trees, and the names that each has from others."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
LAYERS = ("aggregation", "protocols", "peers", "sims")  # a module may import its own layer and those before it
ALLOWED = [
    (
        "sims/world.py",
        "from ..peers.peer import Peer\nfrom ..aggregation import mean\nfrom .loop import Loop",
    ),
    ("__init__.py", "from .peers.peer import Peer\nfrom .sims import world"),
    ("__main__.py", "from . import __version__"),
    ("aggregation/mean.py", "import math\nimport torch\nfrom .vector import Layout\ntorch.zeros(3).load"),
    ("sims/world.py", "import random\nimport time\nrandom.Random(7).choice([1])\ntime.monotonic()"),
    ("sims/world.py", "def f(random, time):\n    random.choice([1])\n    time.time()"),
]
"""Code that keeps every rule, with the path of its file."""


@cache
def library() -> list[tuple[str, str]]:
    """Each module of the library: its path from the root, and its text."""
    paths = [*ROOT.glob("*.py"), *(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))]
    return [(path.relative_to(ROOT).as_posix(), path.read_text("utf-8")) for path in sorted(paths)]


parsed = cache(ast.parse)


@cache
def nodes(source: str) -> list[ast.AST]:
    """All nodes of a file's tree. To walk all trees of the library takes a second, and ten tests look at them."""
    return [*ast.walk(parsed(source))]


def absolute(path: str, level: int, *names: str) -> str:
    """The dotted name of `names` as the file `path` means them. `level`: the number of dots before them; 0: none."""
    package = ["samovar", *path.split("/")[:-1]]
    base = package[: len(package) + 1 - level] if level else []
    return ".".join([*base, *filter(None, names)])


def imports(path: str, source: str) -> Iterator[tuple[ast.Import | ast.ImportFrom, ast.alias, str]]:
    """Each imported name as (statement, alias, absolute dotted name)."""
    for node in nodes(source):
        if isinstance(node, ast.Import):
            yield from ((node, alias, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from ((node, alias, absolute(path, node.level, module, alias.name)) for alias in node.names)


def names(path: str, source: str) -> Iterator[tuple[str, int]]:
    """Each name that comes from another module, however it was imported or renamed, with its line."""
    bound = {}
    for node, alias, name in imports(path, source):
        yield name, node.lineno
        whole = alias.asname or isinstance(node, ast.ImportFrom)
        bound[alias.asname or alias.name.split(".")[0]] = name if whole else name.split(".")[0]
    for node in nodes(source):
        attributes, at = [], node
        while isinstance(at, ast.Attribute):
            attributes.append(at.attr)
            at = at.value
        if attributes and isinstance(at, ast.Name) and at.id in bound:
            yield ".".join([bound[at.id], *reversed(attributes)]), node.lineno


def within(name: str, module: str) -> bool:
    return name == module or name.startswith(module + ".")


def faults_of(check) -> str:
    return "\n".join(fault for path, source in library() for fault in check(path, source))


def assert_found(check, path: str, source: str, said: str) -> None:
    """The check finds a fault in a file that breaks its rule, and each fault says so."""
    faults = check(path, source)
    assert len(faults) >= 1
    assert all(said in fault for fault in faults)
