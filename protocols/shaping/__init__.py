"""A real connection made as slow and as far off as a link that is wished for. Only `transport` is for others."""
