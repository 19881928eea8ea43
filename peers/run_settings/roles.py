"""The roles of a run's founding peers."""

from __future__ import annotations

from ...protocols.members.attributes import SERVER
from ..settings.fields import SettingsError
from .settings import Settings


def role_of(settings: Settings, index: int) -> str:
    """The role of the founding peer with the number `index`, from 0: "" for the first `peers`, which train, and
    `SERVER` for the servers, whose numbers follow."""
    return SERVER if settings.peers <= index < settings.founders else ""


def check_servers(settings: Settings) -> None:
    """Raises SettingsError when the conversation of these settings has no servers."""
    if not settings.own.server_count():
        raise SettingsError(f"{settings.protocol.name} has no servers: take part by samovar join", place="--protocol")
