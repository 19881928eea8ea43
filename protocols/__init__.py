"""Protocols: conversations over an endpoint, and the wire that real endpoints speak."""
