"""Writing a scenario as the text of a scenario file, from which `read_scenario` makes an equal scenario."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

from ...peers.run_settings.settings import Settings
from ...peers.settings.link_text import duration_text, link_text, rate_text, size_text
from ...peers.settings.names import PROTOCOL
from .scenario import TOY_SIZE, Fault, Kind, Moment, Scenario


def scenario_text(scenario: Scenario, task: Path | None = None) -> str:
    """The text of a file with `scenario`. `task`: the task's path in it; None: the toy task. Of the settings, those
    that are defaults are omitted, but not the numbers of peers and servers."""
    return "\n".join(_lines(scenario, task)) + "\n"


def _lines(scenario: Scenario, task: Path | None) -> Iterator[str]:
    if task is not None:
        yield f"task = {_value(str(task))}"
    if scenario.faults_until_s is not None:
        yield f'faults_until = "{duration_text(scenario.faults_until_s)}"'
    if scenario.buggify:
        yield "buggify = true"
    if scenario.toy_size != TOY_SIZE:
        yield f"toy_size = {scenario.toy_size}"
    if scenario.thaws:
        yield "thaws = true"
    if scenario.evaluates:
        yield "evaluates = true"
    if scenario.priorities is not None:
        yield f"priorities = {scenario.priorities}"
    yield from ("", "[settings]")
    values = scenario.settings.plain()
    usual = Settings(device="cpu").changed(protocol=scenario.settings.protocol).plain() | {
        "protocol": str(PROTOCOL.default)
    }
    for name, value in values.items():
        if name in ("peers", "servers") or value != usual[name]:
            yield f"{name} = {_value(value)}"
    for group in scenario.groups:
        yield from ("", "[[groups]]", f"peers = {group.peers}")
        if group.site:
            yield f"site = {_value(group.site)}"
        yield from (f'link = "{link_text(group.link)}"', f'step_time = "{duration_text(group.step_s)}"')
        if group.role:
            yield f'role = "{group.role}"'
        if group.memory_bytes:
            yield f'memory = "{size_text(group.memory_bytes)}"'
        if not group.dialable:
            yield "dialable = false"
        if group.budget_Bps:
            yield f'budget = "{rate_text(group.budget_Bps)}"'
        if group.budget_a_day_bytes:
            yield f'budget_per_day = "{size_text(group.budget_a_day_bytes)}"'
    for one, other, link in scenario.trunks:
        yield from ("", "[[trunks]]", f"between = {_value([one, other])}", f'link = "{link_text(link)}"')
    for peer, at_s in scenario.arrivals:
        yield from ("", "[[arrivals]]", f"peer = {peer}", f'at = "{duration_text(at_s)}"')
    for fault in scenario.faults:
        yield from ("", "[[faults]]", *_fault(fault))


def _fault(fault: Fault) -> Iterator[str]:
    yield f'kind = "{fault.kind}"'
    if fault.who:
        yield f"who = {_value(list(fault.who))}"
    if fault.at_s is not None:
        yield f'at = "{duration_text(fault.at_s)}"'
    for key in ("at_event", "at_step"):
        if (number := getattr(fault, key)) is not None:
            yield f"{key} = {number}"
    if fault.at_message is not None:
        yield f"at_message = {_value(moment_text(fault.at_message))}"
    if fault.for_s:
        yield f'for = "{duration_text(fault.for_s)}"'
    if fault.kind is Kind.SLOW:
        yield f"factor = {fault.factor!r}"
    if fault.kind is Kind.SPOIL:
        yield f"value = {fault.factor!r}"
    if fault.kind is Kind.CLOCK and (fault.factor or not fault.drift):
        yield f'jump = "{"-" if fault.factor < 0 else ""}{duration_text(abs(fault.factor))}"'
    if fault.drift:
        yield f"drift = {fault.drift!r}"
    if fault.kind is Kind.NOISE:
        for field in dataclasses.fields(fault.noise):
            yield f"{field.name} = {getattr(fault.noise, field.name)!r}"
    if fault.link is not None:
        yield f'link = "{link_text(fault.link)}"'
    if fault.lie is not None:
        yield f'lie = "{fault.lie}"'


def moment_text(moment: Moment) -> str:
    """The moment (`Moment`) as a scenario file has it. ``Install 3 sent``: when the third Install is sent. ``Install 3
    sent after Commit``: these are counted only after a Commit has been received."""
    way, after = "sent" if moment.sent else "received", f" after {moment.after}" if moment.after else ""
    return f"{moment.message} {moment.number} {way}{after}"


def _value(value: object) -> str:
    """A value in TOML, which is that in JSON except for a character that only TOML escapes."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
