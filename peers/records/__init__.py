"""The records of a run: what its peers write down, and their sums."""
