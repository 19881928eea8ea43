"""Samovar: federated and decentralized training for PyTorch, from NCCL islands down to smart teapots."""

from .peers.own_loop import Run
from .peers.script import join
from .peers.settings import Settings
from .peers.stop import Stopped

__version__ = "0.1.0"
__all__ = ["Run", "Settings", "Stopped", "__version__", "join"]
