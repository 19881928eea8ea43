"""Samovar: federated and decentralized training for PyTorch, on machines that differ and that come and go."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .peers.api.load import load
    from .peers.api.result import Result
    from .peers.api.train import train
    from .peers.checkpoints.checkpoint import CheckpointError
    from .peers.errors import RunFailed
    from .peers.launch.join_target import JoinFailed
    from .peers.run_settings.settings import Settings
    from .peers.script.join import join
    from .peers.script.run import Run
    from .peers.settings.fields import SettingsError
    from .peers.task.task import TaskError
    from .peers.training.stop import Stopped
    from .protocols.link.link import PeerLost
    from .protocols.members.errors import JoinRefused
    from .sims.api import simulate, sweep
    from .sims.sweeps.show import Sweep
else:

    def __getattr__(name: str) -> Any:
        """PyTorch takes seconds to import: ``samovar --help`` is there without it."""
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f".{_MODULES[name]}", __name__), name)


__version__ = "0.1.0"
__all__ = [
    "CheckpointError",
    "JoinFailed",
    "JoinRefused",
    "PeerLost",
    "Result",
    "Run",
    "RunFailed",
    "Settings",
    "SettingsError",
    "Stopped",
    "Sweep",
    "TaskError",
    "__version__",
    "join",
    "load",
    "simulate",
    "sweep",
    "train",
]
_MODULES = {
    "CheckpointError": "peers.checkpoints.checkpoint",
    "JoinFailed": "peers.launch.join_target",
    "JoinRefused": "protocols.members.errors",
    "PeerLost": "protocols.link.link",
    "Result": "peers.api.result",
    "Run": "peers.script.run",
    "RunFailed": "peers.errors",
    "Settings": "peers.run_settings.settings",
    "SettingsError": "peers.settings.fields",
    "Stopped": "peers.training.stop",
    "Sweep": "sims.sweeps.show",
    "TaskError": "peers.task.task",
    "join": "peers.script.join",
    "load": "peers.api.load",
    "simulate": "sims.api",
    "sweep": "sims.api",
    "train": "peers.api.train",
}


def __dir__() -> list[str]:
    return __all__
