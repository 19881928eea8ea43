"""Launching peers: their processes, keys and run folder, and how others join a running run."""
