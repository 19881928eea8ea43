"""The conversations that `--protocol` chooses between: their registry, their settings, and how each is built."""
