"""Scenarios: the whole input of a simulation, its text form, its files and traces, and the toy task."""
