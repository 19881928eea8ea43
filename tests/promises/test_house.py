"""The house rules, each kept by a test: who may import whom, what the library never calls, what the wheel holds."""

import ast
import importlib.metadata
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from order import LONGEST

import samovar

ROOT = Path(__file__).parents[2]
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
LAYERS = ("aggregation", "protocols", "peers", "sims")  # a module may import its own layer and those before it
LINES_MAX = 300
FUNCTION_LINES_MAX = 70

LOCAL_SGD = re.compile(r"protocols/local_sgd/|peers/conversations/local_sgd|sims/(checkers|conversations)/local_sgd")
"""The files of local SGD's own. Another conversation stands beside them, and no file is changed for it."""
OWN = re.compile(r"LocalSGD|(^|\.)(local_sgd\w*|averaging)$|\.local_sgd\w*\.")
"""What only they may name."""

# What mathematics on vectors needs: nothing that waits, reads, writes or looks at a clock.
PURE = set(
    "__future__ abc bisect cmath collections copy dataclasses enum fractions functools hashlib heapq itertools "
    "json math numbers operator random statistics struct torch types typing".split()
)
IMPURE = ("torch.distributed", "torch.futures", "torch.hub", "torch.multiprocessing", "torch.save")
BANNED = {
    "time.time": "another peer's clock may be an hour off: ask the endpoint, or use time.monotonic",
    "time.time_ns": "another peer's clock may be an hour off: ask the endpoint, or use time.monotonic_ns",
    "pickle": "unpickling runs whatever the sender likes",
    "cloudpickle": "unpickling runs whatever the sender likes",
    "torch.load": "it unpickles: use safetensors",
    "torch.serialization": "it unpickles: use safetensors",
}


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


def layer_faults(path: str, source: str) -> list[str]:
    def rank(layer: str) -> int:
        return LAYERS.index(layer) if layer in LAYERS else len(LAYERS)  # the root stands above every layer

    def upward(name: str) -> bool:
        return rank(name.split(".")[1] if "." in name else "") > rank(path.split("/")[0])

    late = (name for name in late_imports(path, source) if within(name, "samovar"))
    faults = [f"{path}: looks upward to {name}" for name in late if upward(name)]
    for node, _, name in imports(path, source):
        if not within(name, "samovar"):
            continue
        if isinstance(node, ast.Import) or not node.level:
            faults.append(f"{path}:{node.lineno}: {name}: inside the library imports are relative")
        if upward(name):
            faults.append(f"{path}:{node.lineno}: looks upward to {name}")
        if within(name, "samovar.__main__"):
            faults.append(f"{path}:{node.lineno}: __main__ is started, never imported")
    return faults


def purity_faults(path: str, source: str) -> list[str]:
    if not path.startswith("aggregation/"):
        return []
    faults = []
    for name, line in names(path, source):
        impure = any(within(name, module) for module in IMPURE)
        if impure or name.split(".")[0] not in {*PURE, "samovar"}:
            faults.append(f"{path}:{line}: {name}: aggregation is mathematics only")
    for node in nodes(source):
        waits = isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
        called = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
        if waits or called in {"open", "print", "input"}:
            faults.append(f"{path}:{node.lineno}: {called or 'async'}: aggregation neither waits nor reads nor writes")
    return faults


def banned_faults(path: str, source: str) -> list[str]:
    faults = []
    for name, line in names(path, source):
        if path == "peers/task/rng.py" and within(name, "random"):
            continue  # it hands the global one from peer to peer
        puts_another_clock_in_its_place = (path, name) == ("sims/world/wall_clock.py", "time.time")
        if not puts_another_clock_in_its_place:
            faults += [f"{path}:{line}: {name}: {why}" for banned, why in BANNED.items() if within(name, banned)]
        if name.startswith("random.") and not within(name, "random.Random"):
            faults.append(f"{path}:{line}: {name}: draw from a seeded random.Random, not from the global one")
    return faults


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


def conversation_faults(path: str, source: str) -> list[str]:
    """Where a file that is not of local SGD alone names what is."""
    if LOCAL_SGD.match(path):
        return []
    found = [(name, line) for name, line in names(path, source) if OWN.search(name)]
    for node in nodes(source):
        if isinstance(node, ast.Name | ast.Attribute | ast.ClassDef | ast.FunctionDef | ast.arg):
            name = next(getattr(node, of) for of in ("id", "attr", "name", "arg") if hasattr(node, of))
            found += [(name, node.lineno)] if OWN.search(name) else []
    return [f"{path}:{line}: {name} is local SGD's own" for name, line in found]


def folder(module: str) -> str:
    """The folder of the library in which a module stands, or the module itself where it stands beside the folders."""
    names = module.split(".")[1:]
    depths = (depth for depth in range(2, len(names) + 1) if ROOT.joinpath(*names[:depth]).is_dir())
    return "/".join(names[: max(depths, default=len(names))])


def late_imports(path: str, source: str) -> Iterator[str]:
    """The absolute name of each module that `import_module` is given as a literal."""
    for node in nodes(source):
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "import_module":
            said = node.args[0] if node.args else None
            # In an f-string the text before the first value tells the folder.
            said = said.values[0] if isinstance(said, ast.JoinedStr) else said
            if isinstance(said, ast.Constant) and isinstance(said.value, str):
                module = said.value.lstrip(".")
                yield absolute(path, len(said.value) - len(module), *module.split("."))


def circles(sources: list[tuple[str, str]]) -> list[str]:
    """Folders that import each other, directly or through others."""
    uses: dict[str, set[str]] = {}
    for path, source in sources:
        here = folder("samovar." + path.removesuffix(".py").replace("/", "."))
        for name in [*(name for _, _, name in imports(path, source)), *late_imports(path, source)]:
            if within(name, "samovar") and (there := folder(name)) not in (here, ""):
                uses.setdefault(here, set()).add(there)

    def reached(start: str) -> set[str]:
        seen, waiting = set[str](), [start]
        while waiting:
            for other in uses.get(waiting.pop(), set()) - seen:
                seen.add(other)
                waiting.append(other)
        return seen

    return [f"{here} and {there}" for here in uses for there in uses[here] if here in reached(there)]


def definitions(source: str) -> list[str]:
    """The statements of a public face that do more than pass names on, some of them when they are asked for."""
    found = []
    for node in parsed(source).body:
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        told = isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in {"__all__", "__version__", "_MODULES"}
        later = isinstance(node, ast.FunctionDef) and node.name in {"__getattr__", "__dir__"}
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not (docstring or told or later or typing or isinstance(node, ast.Import | ast.ImportFrom)):
            found.append(ast.unparse(node).splitlines()[0])
    return found


def importers(module: str, sources: list[tuple[str, str]]) -> list[str]:
    return [path for path, source in sources if any(within(name, module) for _, _, name in imports(path, source))]


def faults_of(check) -> str:
    return "\n".join(fault for path, source in library() for fault in check(path, source))


def test_every_layer_is_looked_at() -> None:
    seen = {path for path, _ in library()}
    assert {"__init__.py", "__main__.py", *(f"{layer}/__init__.py" for layer in LAYERS)} <= seen


def test_no_layer_looks_upward() -> None:
    assert not faults_of(layer_faults)


def test_no_class_takes_or_keeps_too_much() -> None:
    assert not faults_of(class_faults)


def test_a_class_that_has_become_smaller_is_allowed_no_more_than_it_needs() -> None:
    sizes = {
        name: (arguments, attributes) for _, source in library() for name, arguments, attributes in class_sizes(source)
    }
    assert {name: sizes.get(name) for name in LARGE} == LARGE
    assert all(arguments > ARGUMENTS_MAX or attributes > ATTRIBUTES_MAX for arguments, attributes in LARGE.values())


def test_no_folders_import_each_other() -> None:
    assert circles(list(library())) == []
    planted = [
        ("protocols/link/link.py", "from ..members.view import View"),
        ("protocols/members/view.py", "from ..wire.frames import encode"),
        ("protocols/wire/frames.py", "from ..link import link"),
    ]
    assert len(circles(planted)) == 3


@pytest.mark.parametrize(
    "late",
    [
        'import_module("..conversations.registry", __package__)',
        'importlib.import_module("samovar.peers.conversations.registry")',
        'import_module(f"..conversations.{name}", __package__)',
    ],
)
def test_a_late_import_by_name_hides_no_circle_between_folders(late: str) -> None:
    planted = [("peers/conversations/gossip.py", "from ..settings import fields"), ("peers/settings/fields.py", late)]
    assert sorted(circles(planted)) == [
        "peers/conversations and peers/settings",
        "peers/settings and peers/conversations",
    ]


def test_a_folder_within_a_folder_of_a_layer_is_in_no_circle_with_it() -> None:
    planted = [
        ("protocols/gossip/state.py", "from .algorithms.algorithm import Algorithm"),
        ("protocols/gossip/algorithms/choco.py", "from ..differences import decoded"),
        ("protocols/gossip/differences.py", "from .state import State"),
    ]
    assert len(circles(planted)) == 2


def test_local_sgd_is_named_by_its_own_files_only() -> None:
    assert not faults_of(conversation_faults)


def test_aggregation_is_mathematics_only() -> None:
    assert not faults_of(purity_faults)


def test_zeromq_is_known_to_the_transport_and_its_sockets_only() -> None:
    assert importers("zmq", library()) == ["protocols/zeromq/sockets.py", "protocols/zeromq/transport.py"]


def test_the_library_never_unpickles_reads_the_wall_clock_or_draws_unseeded() -> None:
    assert not faults_of(banned_faults)


def test_no_file_and_no_function_grows_too_long() -> None:
    assert not faults_of(size_faults)


def test_the_root_holds_a_public_face_and_a_command_line_only() -> None:
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]
    assert not definitions((ROOT / "__init__.py").read_text("utf-8"))


def test_the_version_is_the_same_wherever_it_is_told() -> None:
    assert samovar.__version__ == importlib.metadata.version("samovar")


UPWARD = "looks upward"
MATHS = "aggregation is mathematics only"
OWNED = "local SGD's own"
STILL = "neither waits nor reads nor writes"


@pytest.mark.parametrize(
    ("check", "path", "source", "said"),
    [
        (layer_faults, "aggregation/mean.py", "from ..protocols import wire", UPWARD),
        (layer_faults, "aggregation/mean.py", "from .. import protocols", UPWARD),
        (layer_faults, "protocols/gossip.py", "def f():\n    from ..peers.peer import Peer", UPWARD),
        (layer_faults, "protocols/codecs/int8.py", "from ...sims import loop", UPWARD),
        (layer_faults, "peers/peer.py", "if TYPE_CHECKING:\n    from ..sims.loop import Loop", UPWARD),
        (layer_faults, "protocols/gossip.py", "import_module('..peers.peer', __package__)", UPWARD),
        (layer_faults, "sims/world.py", "from .. import __version__", UPWARD),
        (layer_faults, "sims/world.py", "from samovar.peers import peer", "imports are relative"),
        (layer_faults, "sims/world.py", "import samovar.peers.peer as p", "imports are relative"),
        (layer_faults, "__init__.py", "from .__main__ import main", "never imported"),
        (purity_faults, "aggregation/mean.py", "import asyncio", MATHS),
        (purity_faults, "aggregation/mean.py", "from time import monotonic", MATHS),
        (purity_faults, "aggregation/mean.py", "from pathlib import Path", MATHS),
        (purity_faults, "aggregation/mean.py", "import numpy as np", MATHS),
        (purity_faults, "aggregation/mean.py", "from torch import distributed", MATHS),
        (purity_faults, "aggregation/mean.py", "import torch\ntorch.distributed.barrier()", MATHS),
        (purity_faults, "aggregation/mean.py", "async def f(): ...", STILL),
        (purity_faults, "aggregation/mean.py", "open('x')", STILL),
        (banned_faults, "sims/world.py", "import time\nnow = time.time()", "time.monotonic"),
        (banned_faults, "sims/world.py", "import time as t\nnow = t.time", "time.monotonic"),
        (banned_faults, "sims/world.py", "from time import time as now", "time.monotonic"),
        (banned_faults, "sims/world.py", "import random\nrandom.shuffle([])", "seeded"),
        (banned_faults, "sims/world.py", "import random\nrandom.SystemRandom()", "seeded"),
        (banned_faults, "sims/world.py", "from random import choice", "seeded"),
        (banned_faults, "sims/world.py", "import pickle", "unpickling"),
        (banned_faults, "sims/world.py", "from pickle import loads", "unpickling"),
        (banned_faults, "sims/world.py", "import torch\ntorch.load('x')", "safetensors"),
        (banned_faults, "sims/world.py", "import torch.nn\ntorch.load('x')", "safetensors"),
        (banned_faults, "sims/world.py", "from torch import load", "safetensors"),
        (conversation_faults, "sims/world/world.py", "from ...protocols.local_sgd.rounds import Committed", OWNED),
        (conversation_faults, "sims/sweeps/sweep.py", "from ..checkers import local_sgd_means", OWNED),
        (conversation_faults, "peers/peer.py", "def f(peer):\n    peer.averaging.close()", OWNED),
        (conversation_faults, "peers/peer.py", "class OfLocalSGD: ...", OWNED),
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
    faults = check(path, source)
    assert len(faults) >= 1
    assert all(said in fault for fault in faults)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        (
            "sims/world.py",
            "from ..peers.peer import Peer\nfrom ..aggregation import mean\nfrom .loop import Loop",
        ),
        ("__init__.py", "from .peers.peer import Peer\nfrom .sims import world"),
        ("__main__.py", "from . import __version__"),
        ("aggregation/mean.py", "import math\nimport torch\nfrom .vector import Layout\ntorch.zeros(3).load"),
        ("sims/world.py", "import random\nimport time\nrandom.Random(7).choice([1])\ntime.monotonic()"),
        ("sims/world.py", "def f(random, time):\n    random.choice([1])\n    time.time()"),
    ],
)
def test_allowed_code_passes_the_rules(path: str, source: str) -> None:
    for check in (layer_faults, purity_faults, banned_faults, size_faults):
        assert check(path, source) == []


def test_another_file_that_knows_zeromq_is_found() -> None:
    planted = [
        ("protocols/zeromq/transport.py", "import zmq"),
        ("peers/peer.py", "from zmq.auth import certs"),
        ("a.py", ""),
    ]
    assert importers("zmq", planted) == ["protocols/zeromq/transport.py", "peers/peer.py"]


def test_a_definition_in_the_public_face_is_found() -> None:
    face = '"""Doc."""\nfrom .a import b\n__all__ = ["b"]\n__version__ = "1"\n'
    assert definitions(face) == []
    assert definitions(face + "def f(): ...\nx = 1") == ["def f():", "x = 1"]


def test_the_files_that_are_run_first_are_there() -> None:
    assert {name for name in LONGEST if not [*(ROOT / "tests").rglob(f"{name}.py")]} == set()


def cited(page: str) -> set[str]:
    """The tests and promises that a page names: what is `code` and has four words or more."""
    return set(re.findall(r"`([a-z]+(?:_[a-z0-9]+){3,})`", page))


@cache
def written() -> set[str]:
    """Every function of tests/."""
    texts = (path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py"))
    return {name for text in texts for name in re.findall(r"^ *(?:async )?def (\w+)\(", text, re.MULTILINE)}


def test_every_trap_of_zeromq_is_told_and_every_test_that_is_cited_exists() -> None:
    page = (ROOT / "docs" / "zeromq.md").read_text("utf-8")
    rows = re.findall(r"^\| Z(\d+) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    assert rows == [str(n) for n in range(1, len(rows) + 1)]
    named = set(re.findall(r"\bZ(\d+)\b", "".join(source for _, source in library())))
    assert {"1", "26"} <= named <= set(rows)
    assert len(cited(page)) > 20
    assert cited(page) - written() == set()


def test_a_test_that_is_cited_and_was_never_written_is_found() -> None:
    assert cited("`test_it_always_works` and `maxmsgsize`, `of_three_words`") == {"test_it_always_works"}
    assert "test_it_always_works" not in written()
    assert "test_a_test_that_is_cited_and_was_never_written_is_found" in written()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built with what is installed, hence offline, from a clone whose folder's name is no identifier."""
    clone = tmp_path_factory.mktemp("wheel") / "my-clone"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__"))
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", str(clone)], cwd=clone)
    (built,) = (clone / "dist").glob("*.whl")
    return built


def run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_the_wheel_holds_every_module_and_nothing_else(wheel: Path) -> None:
    clone = wheel.parents[1]
    modules = [*clone.glob("*.py"), *(path for layer in LAYERS for path in (clone / layer).rglob("*.py"))]
    wanted = {f"samovar/{path.relative_to(clone).as_posix()}" for path in modules} | {
        "samovar/py.typed",
        "samovar/peers/cli/completions.json",
    }
    told = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt"}
    info = f"samovar-{samovar.__version__}.dist-info"
    assert set(zipfile.ZipFile(wheel).namelist()) == wanted | {f"{info}/{name}" for name in told}


def test_the_wheel_alone_gives_samovar(wheel: Path, tmp_path: Path) -> None:
    install = ["pip", "install", "--quiet", "--no-deps", "--no-index", "--target", "here"]
    run([sys.executable, "-m", *install, str(wheel)], tmp_path)
    code = (
        "import sys; sys.path.insert(0, 'here'); import samovar, samovar.__main__; "
        "assert all(hasattr(samovar, name) for name in samovar.__all__); print(samovar.__file__)"
    )
    found = Path(run([sys.executable, "-c", code], tmp_path).splitlines()[-1])
    assert (tmp_path / found).resolve() == (tmp_path / "here/samovar/__init__.py").resolve()


def test_help_is_there_without_pytorch_which_takes_seconds_to_import(tmp_path: Path) -> None:
    code = "import sys, samovar.__main__; assert hasattr(samovar, '__version__'); print('torch' in sys.modules)"
    assert run([sys.executable, "-c", code], tmp_path).splitlines() == ["False"]
    said = run([sys.executable, "-m", "samovar", "--help"], tmp_path)
    assert all(f"  {verb} " in said for verb in ("train", "join", "simulate", "plan", "report", "keys", "doctor"))


def test_a_missing_attribute_of_samovar_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'samovar' has no attribute 'Rum'"):
        _ = samovar.Rum
