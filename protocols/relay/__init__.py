"""Relaying: a peer that can be dialled carries the connections between peers that cannot."""
