"""The roles of a run's founding peers."""

from __future__ import annotations

from ...protocols.members.attributes import SERVER
from .settings import Settings


def role_of(settings: Settings, index: int) -> str:
    """The role of the founding peer with that number. Peers that train have none ("") and the lowest numbers."""
    return SERVER if settings.peers <= index < settings.founders else ""
