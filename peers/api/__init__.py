"""Runs from Python: `samovar.train`, its arguments and its result."""
