"""The algorithms of gossip, one a file."""
