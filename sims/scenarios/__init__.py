"""Scenarios: what a simulated world is told, in a file or drawn from a seed."""
