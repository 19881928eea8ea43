"""``samovar doctor``: checks whether this machine can take part in a run, and advises what to change."""

from __future__ import annotations

import asyncio
import json
import os
import platform
import resource
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field

import click
import torch

from ...protocols.addresses import local_addresses, split_address
from ...protocols.endpoint import Endpoint
from ...protocols.limits import SWIM_PEERS_MAX, VIEW_MEMBERS_MAX
from ...protocols.link.link import PeerLost
from ...protocols.link_quality.reachability import ask_reach, measure
from ...protocols.zeromq.transport import KeyPair, versions
from ..launch.join_target import JoinFailed, JoinTarget
from ..launch.session import open_endpoint
from ..machine.open_files import FILES_WISHED, raise_file_limit
from ..records.units import bytes_text
from ..run_settings.settings import Settings
from .command_line import between_words
from .flags import GroupedCommand, click_options
from .output import exits

_BY_SWIM = f"gossip with --membership swim: {SWIM_PEERS_MAX:,}"
_FLAGS = ("listen", "advertise", "patience_s", "insecure", "key")


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `what`: the subject of the check; `found`: the result in words; `advice`: the change
    that the user should make, "": none; `facts`: the result as data for JSON."""

    what: str
    found: str
    advice: str = ""
    facts: Mapping[str, object] = field(default_factory=dict)


@click.command(cls=GroupedCommand, first=("invite", "listen", "advertise"))
@click.argument("address", required=False)
@click.option("--invite", metavar="TEXT", help="The invite that `samovar train` printed.")
@click.option("--peer-key", metavar="KEY", help="Public key of the peer at ADDRESS, with --key.")
@click_options(*_FLAGS)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as one JSON object.")
@exits
def doctor(address: str | None, invite: str | None, peer_key: str | None, as_json: bool, **flags: object) -> int:
    """Look at this machine and, with ADDRESS, at the way to the peers of a run.

    Which of my addresses can the other side reach? How long is the way to each peer, and how much does it carry?
    Exits with 1 when something should be changed.
    """
    settings = Settings.read(None, flags)
    raise_file_limit()
    findings = asyncio.run(_examine(settings, address, invite, peer_key))
    _show(findings, as_json)
    return 1 if any(finding.advice for finding in findings) else 0


async def _examine(settings: Settings, address: str | None, invite: str | None, peer_key: str | None) -> list[Finding]:
    findings = _machine()
    if address is None:
        return [*findings, await _listening(settings)]
    target = JoinTarget.of(address, invite, peer_key, settings)
    try:
        endpoint = await target.enter(settings)
        try:
            return findings + await _ways(endpoint, target)
        finally:
            endpoint.abort()
    except JoinFailed as closed:
        return [*findings, Finding(f"the way to {address}", closed.why, closed.advice)]


async def _listening(settings: Settings) -> Finding:
    endpoint = open_endpoint(settings, None if settings.insecure else KeyPair.new().secret)
    await endpoint.open()
    endpoint.abort()
    strangers = "anybody may join, nothing is encrypted" if settings.insecure else "an unknown key is refused"
    return Finding("listening", f"{endpoint.address}; {strangers}")


def _machine() -> list[Finding]:
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    few = f"raise it (ulimit -n {FILES_WISHED}): every peer takes a few" if files < FILES_WISHED else ""
    return [
        Finding("software", f"Python {platform.python_version()}, torch {torch.__version__}, {versions()}"),
        Finding("processors", f"{os.cpu_count()} cores; {', '.join(devices) or 'no CUDA device'}"),
        Finding("open files", f"at most {files}", few),
        Finding("addresses", ", ".join(local_addresses())),
        Finding("peers", f"at most {VIEW_MEMBERS_MAX:,} in a run; {_BY_SWIM}"),
    ]


async def _ways(endpoint: Endpoint, target: JoinTarget) -> list[Finding]:
    port, mine = 0, list[str]()
    if endpoint.pipes is None:
        port = split_address(endpoint.address)[1]
        mine = list(dict.fromkeys([endpoint.address, *(f"tcp://{host}:{port}" for host in local_addresses())]))
    try:
        reached = await ask_reach(endpoint, target.contact, mine)
    except PeerLost as lost:
        if endpoint.is_lost(target.contact) is None:
            return [Finding(f"the other side at {target.address}", lost.why, "ask again in some seconds")]
        raise await target.closed(lost) from None
    problems = dict(zip(mine, reached.problems, strict=False))  # of very many addresses only the first are checked
    reachable = [address for address, problem in problems.items() if not problem]
    findings = []
    for address, problem in problems.items():
        advice = "" if address != endpoint.address or not problem else _advice(reachable, port)
        found = f"not reached: {problem}" if problem else "reached"
        facts = {"address": address, "reached": not problem}
        findings.append(Finding(f"the other side calls {address}", found, advice, facts))
    for member in reached.members:
        if not member.dialable:
            findings.append(Finding(f"peer {member.name}", "it cannot be dialled: it dials the others"))
            continue
        endpoint.dial(member.id, member.address)
        findings.append(await _way(endpoint, member.name, member.id, member.address))
    return findings


def _advice(reachable: list[str], port: int) -> str:
    if reachable:
        return f"others cannot call this peer there: join with --advertise {split_address(reachable[0])[0]}"
    return f"nobody can call this peer: open TCP port {port} (fix it with --listen tcp://*:PORT), or use a VPN"


async def _way(endpoint: Endpoint, name: str, peer: str, address: str) -> Finding:
    what, facts = f"peer {name} at {address}", {"peer": name, "address": address}
    try:
        rtt_s, bandwidth_Bps = await measure(endpoint, peer)
    except PeerLost as lost:
        return Finding(what, lost.why, "this machine cannot reach it: look for a firewall, or use a VPN", facts)
    found = f"{1e3 * rtt_s:.1f} ms, {bytes_text(int(bandwidth_Bps))}/s"
    return Finding(what, found, facts={**facts, "rtt_s": rtt_s, "bandwidth_Bps": bandwidth_Bps})


def _show(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        rows = [{"what": f.what, "found": f.found, "advice": f.advice, **f.facts} for f in findings]
        click.echo(json.dumps({"findings": rows, "well": not any(f.advice for f in findings)}))
        return
    width = max(len(finding.what) for finding in findings)
    for finding in findings:
        # An unreachable address does no harm while the advertised one is reachable.
        mark = "✗" if finding.advice else "✓" if finding.facts.get("reached", True) else "-"
        click.echo(between_words(f"{mark} {finding.what:<{width}}  {finding.found}", sys.stdout, width + 4))
        if finding.advice:
            click.echo(between_words(f"  {'':<{width}}  → {finding.advice}", sys.stdout, width + 6))
