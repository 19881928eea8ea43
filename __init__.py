"""Samovar: federated and decentralized training for PyTorch, from NCCL islands down to smart teapots."""

__version__ = "0.1.0"
__all__ = ["__version__"]
