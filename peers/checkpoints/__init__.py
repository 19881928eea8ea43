"""Checkpoints, each of tensors and numbers in one hashed file, and a peer's Paxos votes on disk."""
