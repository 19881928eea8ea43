"""Sweeps: many drawn scenarios are checked against promises, and failing ones are minimised."""
