"""The declaration of settings: their rules and units, those of every conversation, and TOML files."""
