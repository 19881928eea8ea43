"""Runs from Python: what `samovar.train` takes and returns."""
