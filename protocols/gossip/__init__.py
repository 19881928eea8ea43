"""Gossip: each peer mixes its model with those of a few neighbours, and no peer waits for all others."""
