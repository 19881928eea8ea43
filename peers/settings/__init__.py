"""Settings: flags, TOML files and what goes together."""
