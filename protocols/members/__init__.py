"""Members: which peers are in the run, agreed generation by generation."""
