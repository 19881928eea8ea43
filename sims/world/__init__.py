"""A simulated world: its network, clocks and machines, and the peers that live in it."""
