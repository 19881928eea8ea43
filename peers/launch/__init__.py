"""Launching peers: their processes, keys and run folder, and the way into a run that goes on."""
