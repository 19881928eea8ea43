"""Conversations: what settings ask of each."""
