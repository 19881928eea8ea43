"""A user's own training loop as a peer: `samovar.join` and what it gives."""
