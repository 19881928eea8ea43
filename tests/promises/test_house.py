"""The house rules, each kept by a test: who may import whom."""

import ast
import re
from collections.abc import Iterator

import pytest
from library import (
    ALLOWED,
    LAYERS,
    ROOT,
    absolute,
    assert_found,
    faults_of,
    imports,
    library,
    names,
    nodes,
    parsed,
    within,
)

LOCAL_SGD = re.compile(r"protocols/local_sgd/|peers/conversations/local_sgd|sims/(checkers|conversations)/local_sgd")
"""The files of local SGD's own. Another conversation stands beside them, and no file is changed for it."""
OWN = re.compile(r"LocalSGD|(^|\.)(local_sgd\w*|averaging)$|\.local_sgd\w*\.")
"""What only they may name."""


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


def test_every_layer_is_looked_at() -> None:
    seen = {path for path, _ in library()}
    assert {"__init__.py", "__main__.py", *(f"{layer}/__init__.py" for layer in LAYERS)} <= seen


def test_no_layer_looks_upward() -> None:
    assert not faults_of(layer_faults)


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


def test_zeromq_is_known_to_the_transport_and_its_sockets_only() -> None:
    assert importers("zmq", library()) == ["protocols/zeromq/sockets.py", "protocols/zeromq/transport.py"]


def test_the_root_holds_a_public_face_and_a_command_line_only() -> None:
    assert sorted(path.name for path in ROOT.glob("*.py")) == ["__init__.py", "__main__.py"]
    assert not definitions((ROOT / "__init__.py").read_text("utf-8"))


UPWARD = "looks upward"
OWNED = "local SGD's own"


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
        (conversation_faults, "sims/world/world.py", "from ...protocols.local_sgd.rounds import Committed", OWNED),
        (conversation_faults, "sims/sweeps/sweep.py", "from ..checkers import local_sgd_means", OWNED),
        (conversation_faults, "peers/peer.py", "def f(peer):\n    peer.averaging.close()", OWNED),
        (conversation_faults, "peers/peer.py", "class OfLocalSGD: ...", OWNED),
    ],
)
def test_a_planted_fault_is_found(check, path: str, source: str, said: str) -> None:
    assert_found(check, path, source, said)


@pytest.mark.parametrize(("path", "source"), ALLOWED)
def test_allowed_code_passes_the_rules(path: str, source: str) -> None:
    assert layer_faults(path, source) == []


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
