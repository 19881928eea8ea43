"""A peer's place in a run: its name, data shard, site, link and role."""

from __future__ import annotations

from dataclasses import dataclass

from ..protocols.members.invitation import Invitation
from ..protocols.members.ledger import Store
from ..protocols.shared_memory.common_vector import MachineMemory, Memories


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A peer's place in a run.

    `name`: a display name; a peer's identity is its key. `data_shard`: index of the data shard that the peer asks for.
    `run`: name of the run. `link`: the link to which its connection is slowed down, as text for the records; "": it is
    not. `site`: name of its site; "": none. `role`: its role in the run, as "server"; "": it trains. `invitation`: the
    run's, given by a founding peer; None: there is none, or the peer joins later. `store`: keeps the peer's Paxos votes
    on disk; None: they are not kept. `names_members`: the peer writes an event for each member that it finds, because
    their records are on other machines than its own. `former_s`: seconds since the run began up to which earlier
    processes of this peer have recorded it; 0: there were none. `memories`: opens memory that it shares with other
    peers of its machine.
    """

    name: str
    data_shard: int = 0
    run: str = "run"
    link: str = ""
    site: str = ""
    role: str = ""
    invitation: Invitation | None = None
    store: Store | None = None
    names_members: bool = False
    former_s: float = 0.0
    memories: Memories = MachineMemory()
