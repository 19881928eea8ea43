"""Checkpoints, tensors and numbers in one hashed file; and a peer's votes on disk."""
