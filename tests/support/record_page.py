"""docs/records.md, made from the records' declarations: python tests/support/record_page.py > docs/records.md"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap
import types
from collections.abc import Iterator, Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

from samovar.peers.records import consensus, elsewhere, records, result
from samovar.peers.records.json_lines import FloatOrNaN

HEAD = """# Records and results

A run's folder has a file `peer-NAME.jsonl` for each peer, and `result.json` when the run is over. Each line of a peer's
file is one JSON object. `--json` prints the object of `result.json`, and `samovar.Result` has its fields as attributes.
Seconds are of monotonic clocks. A peer that joins a run of gossip or of a parameter server counts "since the run
started" from its own joining on, so that the results of one run can differ in when a peer came. A number that is not
finite is `null`. Keys may be added at any time, so a reader ignores those that it does not know; a change that it would
misread raises the version. This is version 2. A newer one is refused in one line.

Version 1 had no header lines, no `metrics` by name (only `accuracy`) and no `details`. It is still read. Files of
version 2 that have no `metric_scales`, `model_bytes`, `received_from`, `counts`, `best`, `ended_by`, `missed`,
`metrics_of`, `own_model`, `metrics_at` of an exchange, `metrics_steps`, `steps_before`, or `steps` and `compute_s` of
an event were written before these were added.

Each process begins with a header line, whose `kind` is `schema`. The `kind` of each other line is `round` or `exchange`
for an exchange, else `event`. Types are those of JSON. The unit of a metric is told by its scale; of the unit `%` are
shares from 0 to 1.
"""

TABLES = (
    ("A header", records.Header, ""),
    (
        "An exchange",
        records.ExchangeRecord,
        "`details` is a list of keys in JSON: the conversation's own numbers stand beside the others, under these\n"
        "keys. `accuracy` is there too, as in version 1.",
    ),
    ("A missing peer (`missing` of an exchange)", records.Missing, ""),
    ("An event", records.EventRecord, ""),
    (
        "The result",
        result.Result,
        "Besides: `schema`; and for rounds `accuracy` and `accuracy_round`, as in version 1. `exchanges` is called\n"
        "`rounds` where exchanges are rounds, also in `peers` and `elsewhere`. `virtual_s`, `digest` and `broken` are\n"
        "left out of a real run, and `consensus` where all peers have one model.",
    ),
    ("A peer (`peers` of the result)", result.PeerSummary, ""),
    ("A lost peer (`lost` of the result)", result.Lost, ""),
    ("The best model (`best` of the result)", result.Best, ""),
    (
        "Consensus (`consensus` of the result)",
        consensus.Consensus,
        "Of simulations whose peers have models of their own. `scene.json` has a list of them, about one a round.",
    ),
    ("A peer elsewhere (`elsewhere` of the result)", elsewhere.Elsewhere, ""),
)

NUMBERS = {int: "integer", float: "number", str: "string", bool: "boolean", FloatOrNaN: "number or null"}
UNITS = {"steps_per_s": "steps/s", "when": "s", "step": "local steps", "steps": "local steps"}
"""Units of the fields whose names do not end or begin with them."""


def page() -> str:
    return "\n".join([HEAD, *("\n".join(_table(*table)) for table in TABLES)])


def _table(title: str, kind: type, more: str) -> Iterator[str]:
    yield f"## {title}\n"
    yield from ([f"{more}\n"] if more else [])
    yield "| key | type | unit | |"
    yield "|---|---|---|---|"
    hints, texts = get_type_hints(kind, include_extras=True), _texts(kind)
    for field in dataclasses.fields(kind):
        name, of = field.name, json_type(hints[field.name])
        yield f"| `{name}` | {of} | {_unit(name)} | {texts.get(name, '')} |"
    yield ""


def json_type(hint: Any) -> str:
    """The values of a field with this annotation in JSON."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in NUMBERS:
        return NUMBERS[hint]
    if origin is types.UnionType:
        return f"{json_type(inner[0])} or null"
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in inner)
    if origin is Mapping:
        return f"object: {json_type(inner[1])} by name"
    if origin is tuple:
        return f"list of {json_type(inner[0])}s"
    assert dataclasses.is_dataclass(hint), hint
    return "object"


def _unit(name: str) -> str:
    ending = "s" if name.endswith("_s") else ""
    return UNITS.get(name) or ("bytes" if "bytes" in name.split("_") else ending)


def _texts(kind: type) -> dict[str, str]:
    """Field -> the text below it in the source."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)
    found: dict[str, str] = {}
    last = ""
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last:
            found[last] = " ".join(str(node.value.value).split())
        else:
            last = ""
    return found


if __name__ == "__main__":
    print(page(), end="")
