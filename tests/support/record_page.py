"""docs/records.md, made from the records' declarations: python tests/support/record_page.py > docs/records.md"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
from collections.abc import Iterator

from samovar.peers.records import elsewhere, records, result

HEAD = """# Records and results

A run's folder has a file `peer-NAME.jsonl` for each peer, and `result.json` when the run is over. Each line of a peer's
file is one JSON object. `--json` prints the object of `result.json`, and `samovar.Result` has its fields as attributes.
Seconds are of monotonic clocks. A number that is not finite is `null`. Keys may be added at any time, so a reader
ignores those that it does not know; a change that it would misread raises the version. This is version 2. A newer one
is refused in one line.

Version 1 had no header lines, no `metrics` by name (only `accuracy`) and no `details`. It is still read.

The first line of a file is its header, of kind `schema`: `schema`, the version, and `columns`, the names and titles of
the conversation's own numbers. Each other line has a `kind`: `round` or `exchange` for an exchange, else `event`.
"""

TABLES = (
    (
        "An exchange",
        records.ExchangeRecord,
        "The keys that `details` lists are beside these, and `accuracy`, as in version 1.",
    ),
    ("A missing peer (`missing` of an exchange)", records.Missing, ""),
    ("An event", records.EventRecord, ""),
    (
        "The result",
        result.Result,
        "Besides: `schema`; and for rounds `accuracy` and `accuracy_round`, as in version 1. `exchanges` is called\n"
        "`rounds` where exchanges are rounds, also in `peers` and `elsewhere`. `virtual_s`, `digest` and `broken` are\n"
        "left out of a real run.",
    ),
    ("A peer (`peers` of the result)", result.PeerSummary, ""),
    ("A lost peer (`lost` of the result)", result.Lost, ""),
    ("The best model (`best` of the result)", result.Best, ""),
    ("A peer elsewhere (`elsewhere` of the result)", elsewhere.Elsewhere, ""),
)


def page() -> str:
    return "\n".join([HEAD, *("\n".join(_table(*table)) for table in TABLES)])


def _table(title: str, kind: type, more: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield from ([f"{more}\n"] if more else [])
    yield "| key | type | |"
    yield "|---|---|---|"
    types, texts = _annotations(kind)
    for field in dataclasses.fields(kind):
        yield f"| `{field.name}` | {types[field.name]} | {texts.get(field.name, '')} |"
    yield ""


def _annotations(kind: type) -> tuple[dict[str, str], dict[str, str]]:
    """The fields' types, and the texts below them, as they stand in the source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    types: dict[str, str] = {}
    texts: dict[str, str] = {}
    last = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
            types[last] = ast.unparse(node.annotation).replace("|", "or")
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            texts[last] = " ".join(str(node.value.value).split())
        else:
            last = ""
    return types, texts


if __name__ == "__main__":
    print(page(), end="")
