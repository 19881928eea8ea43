"""The algorithms of the parameter server, one a file."""
