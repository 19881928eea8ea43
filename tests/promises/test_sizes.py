"""The limits on the size of a file, a function and a class, each kept by a test."""

import ast
from collections.abc import Iterator

import pytest
from library import ALLOWED, assert_found, faults_of, library, nodes

ARGUMENTS_MAX, ATTRIBUTES_MAX = 7, 12
LARGE = {
    "Acceptor": (6, 16),
    "Allreduce": (8, 21),
    "Attempts": (9, 9),
    "Change": (8, 19),
    "CodedAllreduce": (9, 4),
    "Endpoint": (3, 15),
    "Gradients": (5, 18),
    "Lateness": (5, 17),
    "Life": (14, 16),
    "Link": (6, 13),
    "LocalSGD": (16, 21),
    "LocalSGDConversation": (4, 15),
    "Machine": (3, 13),
    "Membership": (5, 20),
    "Network": (3, 20),
    "Roster": (3, 23),
    "Stalls": (4, 17),
    "Trainer": (7, 13),
    "Trial": (9, 10),
    "World": (3, 19),
    "ZeroMQTransport": (3, 15),
}
"""Classes above these limits: they are to be split, and may not grow meanwhile."""
LINES_MAX = 300
FUNCTION_LINES_MAX = 70


def size_faults(path: str, source: str) -> list[str]:
    lines = len(source.splitlines())
    faults = [f"{path}: {lines} lines: two concerns met here?"] if lines > LINES_MAX else []
    for node in nodes(source):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or 0) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                faults.append(f"{path}:{node.lineno}: {node.name} has {lines} lines")
    return faults


def class_sizes(source: str) -> Iterator[tuple[str, int, int]]:
    """Each class that has a constructor of its own: how many arguments that takes, and how many attributes the class
    sets on itself."""
    for node in nodes(source):
        for made in node.body if isinstance(node, ast.ClassDef) else ():
            if isinstance(made, ast.FunctionDef) and made.name == "__init__":
                own = {
                    one.attr
                    for one in ast.walk(node)
                    if isinstance(one, ast.Attribute) and isinstance(one.ctx, ast.Store)
                    if isinstance(one.value, ast.Name) and one.value.id == "self"
                }
                assert isinstance(node, ast.ClassDef)
                yield node.name, len(made.args.args) - 1 + len(made.args.kwonlyargs), len(own)


def class_faults(path: str, source: str) -> list[str]:
    faults = []
    for name, arguments, attributes in class_sizes(source):
        most = LARGE.get(name, (ARGUMENTS_MAX, ATTRIBUTES_MAX))
        for count, limit, what in ((arguments, most[0], "arguments"), (attributes, most[1], "attributes")):
            if count > limit:
                faults.append(f"{path}: {name} has {count} {what}, at most {limit}: split it")
    return faults


def test_no_class_takes_or_keeps_too_much() -> None:
    assert not faults_of(class_faults)


def test_a_class_that_has_become_smaller_is_allowed_no_more_than_it_needs() -> None:
    sizes = {
        name: (arguments, attributes) for _, source in library() for name, arguments, attributes in class_sizes(source)
    }
    assert {name: sizes.get(name) for name in LARGE} == LARGE
    assert all(arguments > ARGUMENTS_MAX or attributes > ATTRIBUTES_MAX for arguments, attributes in LARGE.values())


def test_no_file_and_no_function_grows_too_long() -> None:
    assert not faults_of(size_faults)


@pytest.mark.parametrize(
    ("check", "path", "source", "said"),
    [
        (size_faults, "sims/world.py", "x = 1\n" * (LINES_MAX + 1), "two concerns"),
        (
            class_faults,
            "sims/world.py",
            "class A:\n    def __init__(self, a, b, c, d, e, f, *, g, h): ...",
            "8 arguments",
        ),
        (
            class_faults,
            "sims/world.py",
            "class A:\n    def __init__(self):\n" + "".join(f"        self.a{n} = 0\n" for n in range(13)),
            "13 attributes",
        ),
        (size_faults, "sims/world.py", "async def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX, "f has 71 lines"),
    ],
)
def test_a_planted_fault_is_found(check, path: str, source: str, said: str) -> None:
    assert_found(check, path, source, said)


@pytest.mark.parametrize(("path", "source"), ALLOWED)
def test_allowed_code_passes_the_rules(path: str, source: str) -> None:
    assert size_faults(path, source) == []
