"""Members: which peers are in the run. The members agree on a list of them, the view, generation by generation."""
