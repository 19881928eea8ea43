"""Checkpoints: tensors and numbers in one hashed file."""
