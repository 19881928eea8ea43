"""Mixing: the graphs along which gossip averages, their weights, and how fast they bring all peers together."""
