"""``samovar plan``: predicts the fastest allreduce on given links, the fastest topology of gossip, or how many
parameter servers pay, before a run is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import click
from rich.console import Console, Group
from rich.table import Column
from rich.text import Text

from ...aggregation.schedules.cost import Links, timeline
from ...aggregation.schedules.registry import SCHEDULES
from ...aggregation.schedules.schedule import Schedule
from ...aggregation.schedules.shares import by_bandwidth, coarse
from ...protocols.limits import BEYOND_VIEWS, VIEW_MEMBERS_MAX, beyond
from ...protocols.link.congestion import WINDOW_BYTES_MAX, suiting_chunk
from ...protocols.link_spec import LinkSpec
from ..records.units import bytes_text, count_text, seconds_text
from ..report.plan_chart import Bar, plan_chart
from ..report.plan_graph import graph_chart
from ..settings.link_text import parse_duration, parse_link, parse_size
from . import plan_gossip, plan_servers
from .command_line import between_words
from .fitting import Folded
from .output import exits
from .plan_gossip import names_of


def _taken(parse: Callable[[str], Any]) -> Callable[[click.Context, click.Parameter, str | None], Any]:
    """A click callback that converts an option's text, if it was given, by `parse`. A ValueError of `parse` becomes a
    usage error."""

    def take(context: click.Context, option: click.Parameter, text: str | None) -> Any:
        try:
            return None if text is None else parse(text)
        except ValueError as error:
            raise click.BadParameter(str(error), context, option) from None

    return take


def _size(text: str) -> int:
    if (size := parse_size(text)) < 1:
        raise ValueError(f"a size of {text!r} is nothing to send")
    return size


def _specs(text: str) -> tuple[str, list[LinkSpec]]:
    return text, [parse_link(kind) for kind in text.split(";")]


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule's predicted cost. `shares`: the sizes of the vector's parts, as shares of the whole; None: equal.
    `seconds`: of the whole averaging; `messages`, `bytes`: sent by the peer that sends the least, and by the one that
    sends the most."""

    schedule: Schedule
    shares: tuple[float, ...] | None
    seconds: float
    messages: tuple[int, int]
    bytes: tuple[int, int]


class Shown(NamedTuple):
    """A plan for people and for machines: its title, its plain values, its table, and lines below the table."""

    title: str
    plain: Mapping[str, object]
    table: Folded
    notes: Sequence[str]


def _few(context: click.Context, parameter: click.Parameter, peers: int) -> int:
    if peers > VIEW_MEMBERS_MAX:
        why = f"{peers} are too many to plan for: at most {VIEW_MEMBERS_MAX} know each other; {BEYOND_VIEWS}"
        raise click.BadParameter(why, context, parameter)
    return peers


@click.command()
@click.option(
    "--peers", type=click.IntRange(1), callback=_few, default=4, metavar="N", help="Peers that average. [default: 4]"
)
@click.option(
    "--size", callback=_taken(_size), metavar="SIZE", required=True, help="Bytes of the model, such as 100MB."
)
@click.option(
    "--link",
    callback=_taken(_specs),
    default="100mbit,5ms",
    metavar="LINK",
    help="Each peer's connection: bandwidth, latency, jitter, of which half counts; of several, with ; between them, "
    "in turn. [default: 100mbit,5ms]",
)
@click.option(
    "--overhead",
    callback=_taken(parse_duration),
    default="100us",
    metavar="TIME",
    help="Time that a chunk costs its sender and its receiver, however small it is. [default: 100us]",
)
@click.option(
    "--protocol",
    type=click.Choice(["allreduce", "gossip", "parameter-server"]),
    default="allreduce",
    help="[default: allreduce]",
)
@click.option(
    "--topology",
    callback=_taken(names_of),
    default="all",
    metavar="NAME",
    help="With gossip: a topology, or all. [default: all]",
)
@click.option(
    "--copies",
    type=click.IntRange(1, 8),
    default=2,
    metavar="N",
    help="With parameter-server: servers that hold each value. [default: 2]",
)
@click.option(
    "--consistency",
    type=click.Choice(["bsp", "async"]),
    default="bsp",
    help="With parameter-server: workers in step, or at their own pace. [default: bsp]",
)
@click.option(
    "--server-link",
    callback=_taken(_specs),
    metavar="LINK",
    help="With parameter-server: each server's connection. [default: as --link]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as one JSON object.")
@click.option(
    "--svg", is_flag=False, flag_value="plan.svg", type=click.Path(path_type=Path), metavar="[FILE]",
    help="Draw it as well. [default: plan.svg]",
)  # fmt: skip
@exits
def plan(
    peers: int,
    size: int,
    link: tuple[str, list[LinkSpec]],
    overhead: float,
    protocol: str,
    topology: list[str],
    copies: int,
    consistency: str,
    server_link: tuple[str, list[LinkSpec]] | None,
    as_json: bool,
    svg: Path | None,
) -> int:
    """Predict how long an averaging takes by each schedule; with --protocol gossip, how fast models come together along
    each topology; with --protocol parameter-server, how many servers pay.

    The prediction knows links and messages, but neither how busy the machines are nor other traffic on the links.
    """
    text, kinds = link
    specs = [kinds[index % len(kinds)] for index in range(peers)]
    links, chunk_bytes = _links(specs, overhead), min(map(_chunk_bytes, specs))
    on = f"each on {text}" if len(kinds) == 1 else f"on {text} in turn"
    among = f"{bytes_text(size)} among {count_text(peers, 'peer')}, {on}"
    asked = {
        "peers": peers,
        "size_bytes": size,
        "link": text,
        "overhead_s": overhead,
        "svg": None if svg is None else str(svg),
    }
    with Console(stderr=True).status("predicting"):
        if protocol == "gossip":
            found = _of_gossip(f"gossip of {among}", topology, links, size, svg)
        elif protocol == "parameter-server":
            found = _of_servers(among, copies, consistency, links, server_link or link, size, svg)
        else:
            found = _of_allreduce(f"allreduce of {among}", links, size, chunk_bytes, svg)
    if as_json:
        click.echo(json.dumps({**asked, **found.plain}))
        return 0
    shown = Group(Text(found.title, style="bold"), Text(), found.table)
    Console(width=None if sys.stdout.isatty() else 200).print(shown)
    for line in found.notes:
        click.echo(between_words(line, sys.stdout))
    if svg is not None:
        click.echo(f"drawn: {svg}")
    return 0


def _of_allreduce(title: str, links: Links, size: int, chunk_bytes: int, svg: Path | None) -> Shown:
    found = [_planned(schedule, links, size, chunk_bytes) for schedule in SCHEDULES.values()]
    found.sort(key=lambda planned: planned.seconds)
    if svg is not None:
        bars = [Bar(planned.schedule.name, planned.seconds) for planned in found]
        sent = timeline(found[0].schedule, links, size, chunk_bytes, found[0].shares)
        svg.write_text(plan_chart(title, bars, links.world, sent), "utf-8")
    notes = [
        f"{row.schedule.name}: a peer sums up {min(row.shares):.0%} to {max(row.shares):.0%} of it"
        for row in found
        if row.shares is not None
    ]
    limits = beyond(links.world)
    notes += [f"with more than {limit.members} peers {limit.beyond}" for limit in limits]
    plain = {"chunk_bytes": chunk_bytes, "beyond": [limit.beyond for limit in limits], **_as_json(found)}
    return Shown(title, plain, _table(found), notes)


def _of_gossip(title: str, topologies: list[str], links: Links, size: int, svg: Path | None) -> Shown:
    found = plan_gossip.all_planned(topologies, links, size)
    if svg is not None:
        svg.write_text(graph_chart(f"{title}: rounds until 1 % is left", plan_gossip.graphs_of(found, links)), "utf-8")
    notes = [f"{row.topology}: {row.note}" for row in found if row.note]
    notes.append("together: 1 % is left of the distance of all models from their mean")
    return Shown(title, plan_gossip.as_json(found), plan_gossip.table(found), notes)


def _of_servers(
    among: str,
    copies: int,
    consistency: str,
    workers: Links,
    server_link: tuple[str, list[LinkSpec]],
    size: int,
    svg: Path | None,
) -> Shown:
    text, kinds = server_link
    most = min(plan_servers.MOST, VIEW_MEMBERS_MAX - workers.world)
    if svg is not None:
        raise click.UsageError("--svg draws schedules and graphs: it does not go with --protocol parameter-server")
    if most < 1:
        raise click.UsageError(f"--peers {workers.world} leave no room for a server: at most {VIEW_MEMBERS_MAX} peers")
    servers = _links([kinds[index % len(kinds)] for index in range(most)], workers.overhead_s)
    found = plan_servers.all_planned(copies, workers, servers, size, in_step=consistency == "bsp")
    each = "1 copy" if copies == 1 else f"{copies} copies"
    title = f"parameter servers of {among}; {consistency}, {each} of each value, servers on {text}"
    return Shown(title, plan_servers.as_json(found), plan_servers.table(found), plan_servers.notes(found, size))


def _links(specs: list[LinkSpec], overhead_s: float) -> Links:
    return Links(
        alpha_s=tuple(link.latency_s + link.jitter_s / 2 for link in specs),
        up_Bps=tuple(link.bandwidth_Bps for link in specs),
        down_Bps=tuple(link.receives_Bps for link in specs),
        overhead_s=overhead_s,
    )


def _chunk_bytes(link: LinkSpec) -> int:
    """The approximate chunk size, in bytes, that real peers choose on such a link, where up to half a second of its
    bandwidth is in flight."""
    bandwidth_Bps = min(link.bandwidth_Bps, link.receives_Bps)
    return suiting_chunk(min(bandwidth_Bps / 2, WINDOW_BYTES_MAX), bandwidth_Bps)


def _planned(schedule: Schedule, links: Links, size: int, chunk_bytes: int) -> Planned:
    seconds, messages, sizes = 0.0, [0] * links.world, [0] * links.world
    shares = by_bandwidth(coarse(tuple(map(min, links.up_Bps, links.down_Bps)))) if schedule.name == "sharded" else None
    for sent in timeline(schedule, links, size, chunk_bytes, shares):
        seconds = max(seconds, sent.end_s)
        messages[sent.sender] += 1
        sizes[sent.sender] += sent.bytes
    return Planned(schedule, shares, seconds, (min(messages), max(messages)), (min(sizes), max(sizes)))


def _as_json(found: list[Planned]) -> dict[str, object]:
    rows = [
        {
            "schedule": row.schedule.name,
            "seconds": row.seconds,
            "messages": row.messages,
            "bytes": row.bytes,
            "shares": row.shares,
        }
        for row in found
    ]
    return {"best": found[0].schedule.name, "schedules": rows}


def _table(found: list[Planned]) -> Folded:
    heads = ("time", "messages a peer", "sent by a peer")
    numbers = [Column(head, justify="right", no_wrap=True) for head in heads]
    table = Folded(Column(""), Column("schedule", no_wrap=True), *numbers, repeated=2)
    for number, row in enumerate(found):
        cells = (seconds_text(row.seconds), _range(row.messages, str), _range(row.bytes, bytes_text))
        best = number == 0
        table.add_row("→" if best else "", row.schedule.name, *cells, style="bold" if best else "")
    return table


def _range(values: tuple[int, int], text: Callable[[int], str]) -> str:
    least, most = map(text, values)
    return least if least == most else f"{least} to {most}"
