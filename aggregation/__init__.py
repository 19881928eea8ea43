"""Aggregation: pure mathematics on flat vectors. Values in, values out, without async, IO, clock or randomness."""
