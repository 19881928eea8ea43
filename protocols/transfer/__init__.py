"""Transfer: vectors and snapshots on their way from one peer to another."""
