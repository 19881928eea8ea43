"""Shaping: makes a real connection as slow and as distant as a wished link. Only `shaped_transport` is public."""
