"""The records that the peers of a run write, and totals over them."""
