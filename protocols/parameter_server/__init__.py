"""The conversation of a parameter server."""
