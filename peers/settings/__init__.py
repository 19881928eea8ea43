"""Settings: flags, TOML files, and rules on which settings go together."""
