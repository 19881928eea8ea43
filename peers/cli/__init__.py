"""The verbs of the command line, and what they show."""
