"""Members: who takes part, agreed generation by generation."""
