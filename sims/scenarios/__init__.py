"""Scenarios: the input of a simulation, from a file or drawn from a seed."""
