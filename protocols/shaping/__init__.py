"""Shaping: slows a real connection down to the bandwidth and latency of a given link. Only `shaped_transport` is
public."""
