"""Server functions: what a push does to the values that a parameter server holds."""
