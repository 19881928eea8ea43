"""Delivery: what makes one promise of any transport: each message once, in order, under credit."""
