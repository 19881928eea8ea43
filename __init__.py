"""Samovar: federated and decentralized training for PyTorch, from NCCL islands down to smart teapots."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .peers.script.join import join
    from .peers.script.run import Run
    from .peers.settings.settings import Settings
    from .peers.training.stop import Stopped

__version__ = "0.1.0"
__all__ = ["Run", "Settings", "Stopped", "__version__", "join"]
_MODULES = {"Run": "script.run", "Settings": "settings.settings", "Stopped": "training.stop", "join": "script.join"}


def __getattr__(name: str) -> Any:
    """PyTorch takes seconds to import: ``samovar --help`` is there without it."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".peers.{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return __all__
