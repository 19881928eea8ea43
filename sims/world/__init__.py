"""A simulated world: its network, clocks, machines and faults, and the peers that run in it."""
