"""The file of a topology's edges (``--topology edges:FILE``): two peer numbers a line, and the weight of the edge if
edges have weights. Text behind a # is a comment. `networkx.write_edgelist` writes such a file with ``data=False`` or
``data=["weight"]``.

The edges are part of the run's settings, so all peers have the same ones, and a newcomer needs no file.
"""

from __future__ import annotations

import re
from pathlib import Path

from ...aggregation.mixing.edge_list import TEXT_MAX, EdgeList, add
from ...aggregation.mixing.topology import Edge
from ...aggregation.options import OptionError, spelled
from ..reasons import reason

_EDGES = "edges:"
_FILE_BYTES_MAX = 1 << 20
_WEIGHT = re.compile(r"\d*\.?\d+(e[+-]?\d+)?|\d+\.", re.I)


def with_edges(text: str) -> str:
    """`text`, a topology as the user gives it. If it names a file of edges, the file's name is replaced by the edges in
    it. Raises OptionError when the file cannot be read or is invalid."""
    if not spelled(text.strip()).startswith(_EDGES):
        return text
    given = text.strip()[len(_EDGES) :]
    if not given or re.match(r"\d+-\d+(,|\*|$)", given):
        return text
    path = Path(given)
    try:
        with path.open("rb") as file:
            content = file.read(_FILE_BYTES_MAX + 1)
        lines = content.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise OptionError(f"{path}: it is no text in UTF-8") from None
    except (OSError, ValueError) as error:
        raise OptionError(f"{path}: cannot be read: {reason(error)}") from None
    if len(content) > _FILE_BYTES_MAX:
        raise OptionError(f"{path}: a file of edges has at most {_FILE_BYTES_MAX} bytes")
    return _EDGES + _one_line(path, lines)


def _one_line(path: Path, lines: list[str]) -> str:
    found: dict[Edge, float] = {}
    first = 0
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words:
            continue
        try:
            _add(found, words)
            if len(words) != (first := first or len(words)):
                raise ValueError("either all edges have a weight or none has one")
        except ValueError as error:
            raise OptionError(f"{path}, line {number}: {error}") from None
    try:
        text = EdgeList(tuple(sorted(found.items()))).text
    except ValueError as error:
        raise OptionError(f"{path}: {error}") from None
    if len(text) + len(_EDGES) > TEXT_MAX:
        raise OptionError(f"{path}: {len(found)} edges are {len(text)} letters in one line, a run tells {TEXT_MAX}")
    return text


def _add(found: dict[Edge, float], words: list[str]) -> None:
    peers, weight = words[:2], words[2:]
    if len(words) not in (2, 3) or not all(one.isascii() and one.isdigit() and len(one) < 10 for one in peers):
        raise ValueError(f"two peer numbers, and at most a weight, were due, got {' '.join(words)[:60]!a}")
    if weight and not _WEIGHT.fullmatch(weight[0][:40]):
        raise ValueError(f"{weight[0][:40]!a} is no weight")
    add(found, int(peers[0]), int(peers[1]), float(weight[0][:40]) if weight else 1.0)
