"""A user's own training loop as a peer: `samovar.join` and the `Run` that it returns."""
