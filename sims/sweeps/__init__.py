"""Sweeps: scenarios are drawn from seeds, run and checked against promises, and failing ones are minimised."""
