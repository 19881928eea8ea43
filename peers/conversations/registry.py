"""The registry of the conversations that `--protocol` chooses between. A conversation is an algorithm that peers run
together, such as gossip. One line in `CONVERSATIONS` adds one.

A conversation's module defines `CONVERSATION`, a `Registered`; so does a user's own file (`--protocol FILE.py`). An
installed package declares its conversations as entry points of the group `ENTRY_POINTS`. A name of `CONVERSATIONS` goes
before an equal one of a package.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...protocols.clock import RunClock
from ...protocols.conversation import Conversation
from ...protocols.endpoint import Endpoint
from ...protocols.members.port import RunMembers, Way
from ...protocols.shared_memory.common_vector import Memories
from ...protocols.stalls.stalls import Stalls
from ..checkpoints.checkpoint import Snapshot
from ..settings.common import ChosenSettings
from ..settings.fields import OwnSettings, Spoken
from ..task.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """The arguments of a conversation's builder: the peer's endpoint, its membership, its watch for peers whose work
    stalls, the run's clock and settings, and the facts of the replica. `way`: takes the peer into the run, for a
    conversation without a state that all agree on. `memories`: opens memory that it shares with other peers of its
    machine. `steps`: local steps of the run; None: a script decides. `resumed`: a checkpoint that holds the
    conversation's position; None: the run begins anew."""

    endpoint: Endpoint
    membership: RunMembers
    way: Way
    memories: Memories
    stalls: Stalls
    clock: RunClock
    settings: ChosenSettings
    facts: Facts
    steps: int | None = None
    resumed: Snapshot | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """The declaration of a conversation.

    `settings`: a frozen dataclass of the conversation's own settings, from which flags, TOML keys, help and refusals
    derive. `build`: makes one peer's conversation, or raises ValueError. `ends_together`: the run ends for all peers at
    once; if False, the end of one peer says nothing about the others. `trains_on`: members train on where too few are
    left to agree on a list of members; False: they wait. `columns`: name -> title of each number in its records
    (`Outcome.details`). `simulation`: name of the module with its checkers, rare places and drawing ranges for
    simulations, which only they import; "": none.
    """

    settings: type[OwnSettings]
    build: Callable[[Setup], Conversation]
    ends_together: bool = True
    trains_on: bool = False
    columns: Mapping[str, str] = field(default_factory=dict)
    simulation: str = ""


CONVERSATIONS: Final[Mapping[str, str]] = {
    "allreduce": "samovar.peers.conversations.local_sgd_entry",
    "gossip": "samovar.peers.conversations.gossip",
    "parameter_server": "samovar.peers.conversations.parameter_server",
}
"""Name for `--protocol` -> the module that defines `CONVERSATION`."""
ENTRY_POINTS: Final = "samovar.conversations"
"""The group of entry points by which installed packages declare conversations. Each names a `Registered`."""


def conversation(settings: ChosenSettings) -> Registered:
    """The declaration of the conversation that the setting `protocol` chooses."""
    return declared_by(settings.protocol)


def declared_by(spoken: Spoken) -> Registered:
    """The declaration of the conversation that `spoken`, the value of a setting, stands for."""
    found = spoken.registered
    assert isinstance(found, Registered)
    return found
