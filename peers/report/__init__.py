"""The report of a run: an HTML page and a trace, made from its records."""
