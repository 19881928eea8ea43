"""Launching peers: their processes, keys and run folder, and joining a run from another machine."""
