"""Sweeps: many drawn worlds held against promises, and what is done with one that breaks them."""
