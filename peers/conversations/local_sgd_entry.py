"""Local SGD over allreduce, as `--protocol` finds it. `local_sgd` builds it: with the modules of that conversation it
takes 2 MB, and a peer that joins a run of another conversation does without."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..records.columns import ROUNDS
from .local_sgd_settings import LocalSGDSettings
from .registry import Registered, Setup

if TYPE_CHECKING:
    from ...protocols.local_sgd.conversation import LocalSGDConversation


def build(setup: Setup) -> LocalSGDConversation:
    """The local SGD conversation of one peer. Raises ValueError as `local_sgd.build` does."""
    from . import local_sgd

    return local_sgd.build(setup)


CONVERSATION = Registered(
    settings=LocalSGDSettings, build=build, columns=ROUNDS, simulation="samovar.sims.conversations.local_sgd"
)
