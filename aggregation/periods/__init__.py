"""How many local steps a peer takes until the next average: one policy, one file."""
