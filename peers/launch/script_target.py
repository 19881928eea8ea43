"""The run that `samovar join ADDRESS SCRIPT` hands to the script, whose call of `samovar.join()` joins it.

It travels in an environment variable, which other users of the machine cannot read, because an invite is a password.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

JOIN_VARIABLE = "SAMOVAR_JOIN"


@dataclass(frozen=True, slots=True)
class ScriptTarget:
    """The arguments of `samovar.join`, from the command line or from the script itself: `settings` by name, and the
    others under their names there, None where not given; `address` None: a new run. `arguments`: the script's own, from
    the command line, which must be the run's; None: the script alone knows what they mean, one may be the address.
    `role`: of the peer in the run; "": it trains."""

    address: str | None
    invite: str | None
    peer_key: str | None
    name: str | None
    settings: Mapping[str, Any]
    arguments: str | None = None
    role: str = ""

    def environment(self) -> dict[str, str]:
        """The environment for the script's process: that of this process, and the variable that hands the target
        over."""
        return {**os.environ, JOIN_VARIABLE: json.dumps(asdict(self))}

    @classmethod
    def taken(cls) -> Self | None:
        """The target of this process from the command line; None: there is none. The variable is removed from the
        environment, so that neither a later run nor a grandchild uses it."""
        text = os.environ.pop(JOIN_VARIABLE, None)
        return None if text is None else cls(**json.loads(text))
