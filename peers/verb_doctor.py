"""``samovar doctor``: what stands between this machine and a run, and what to change."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
from dataclasses import dataclass

import click
import torch
from rich.console import Console
from rich.table import Table

from ..protocols.addresses import local_addresses, split_address
from ..protocols.endpoint import Endpoint
from ..protocols.link import PeerLost
from ..protocols.probe import ask_reach, measure
from ..protocols.zeromq import KeyPair, versions
from .door import Door
from .opening import open_endpoint, raise_file_limit
from .output import run_verb
from .settings import Settings, click_options
from .units import bytes_text

_FLAGS = ("listen", "advertise", "patience_s", "insecure", "key")
_FILES_MIN = 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at. `advice` is empty when all is well."""

    what: str
    found: str
    advice: str = ""


@click.command()
@click.argument("address", required=False)
@click.option("--invite", metavar="TEXT", help="From the line that `samovar train` printed.")
@click.option("--peer-key", metavar="KEY", help="Public key of the peer at ADDRESS, with --key instead of an invite.")
@click_options(*_FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
def doctor(address: str | None, invite: str | None, peer_key: str | None, as_json: bool, **flags: object) -> None:
    """Look at this machine and, with ADDRESS, at the way to the peers of a run.

    Which of my addresses can the other side reach? How long is the way to each peer, and how much does it carry?
    Exits with 1 when something should be changed.
    """

    def work() -> int:
        settings = Settings.read(None, flags)
        raise_file_limit()
        findings = asyncio.run(_examine(settings, address, invite, peer_key))
        _show(findings, as_json)
        return 1 if any(finding.advice for finding in findings) else 0

    run_verb(work)


async def _examine(settings: Settings, address: str | None, invite: str | None, peer_key: str | None) -> list[Finding]:
    findings = _machine()
    if address is None:
        endpoint = open_endpoint(settings, None if settings.insecure else KeyPair.new().secret)
        await endpoint.open()
        findings.append(Finding("listening", f"{endpoint.address}; an unknown key is refused"))
        endpoint.abort()
        return findings
    door = Door.of(address, invite, peer_key, settings)
    try:
        endpoint = await door.enter(settings)
    except PeerLost as lost:
        advice = (
            f"is the run still there, and can this machine reach {address}? Ask for a new join line if it restarted"
        )
        return [*findings, Finding(f"the way to {address}", lost.why, advice)]
    try:
        return findings + await _ways(endpoint, door)
    finally:
        endpoint.abort()


def _machine() -> list[Finding]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    few = f"raise it (ulimit -n {_FILES_MIN}): every peer takes a few" if files < _FILES_MIN else ""
    return [
        Finding("software", f"Python {platform.python_version()}, torch {torch.__version__}, {versions()}"),
        Finding("processors", f"{os.cpu_count()} cores; {', '.join(devices) or 'no CUDA device'}"),
        Finding("open files", f"at most {files}", few),
        Finding("addresses", ", ".join(local_addresses())),
    ]


async def _ways(endpoint: Endpoint, door: Door) -> list[Finding]:
    port = split_address(endpoint.address)[1]
    mine = list(dict.fromkeys([endpoint.address, *(f"tcp://{host}:{port}" for host in local_addresses())]))
    reached = await ask_reach(endpoint, door.contact, mine)
    problems = dict(zip(mine, reached.problems, strict=True))
    reachable = [address for address, problem in problems.items() if not problem]
    findings = []
    for address, problem in problems.items():
        advice = "" if address != endpoint.address or not problem else _advice(reachable, port)
        findings.append(Finding(f"the other side calls {address}", problem or "reached", advice))
    for member in reached.members:
        endpoint.dial(member.id, member.address)
        findings.append(await _way(endpoint, member.name, member.id, member.address))
    return findings


def _advice(reachable: list[str], port: int) -> str:
    if reachable:
        return f"others cannot call this peer there: join with --advertise {split_address(reachable[0])[0]}"
    return f"nobody can call this peer: open TCP port {port} (fix it with --listen tcp://*:PORT), or use a VPN"


async def _way(endpoint: Endpoint, name: str, peer: str, address: str) -> Finding:
    try:
        rtt_s, bandwidth_Bps = await measure(endpoint, peer)
    except PeerLost as lost:
        return Finding(f"peer {name} at {address}", lost.why, "this machine cannot reach it: check the way, or a VPN")
    return Finding(f"peer {name} at {address}", f"{1e3 * rtt_s:.1f} ms, {bytes_text(int(bandwidth_Bps))}/s")


def _show(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        rows = [{"what": f.what, "found": f.found, "advice": f.advice} for f in findings]
        click.echo(json.dumps({"findings": rows, "well": not any(f.advice for f in findings)}))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for finding in findings:
        table.add_row("✗" if finding.advice else "✓", finding.what, finding.found)
        if finding.advice:
            table.add_row("", "", f"→ {finding.advice}", style="bold")
    Console(markup=False, highlight=False).print(table)
