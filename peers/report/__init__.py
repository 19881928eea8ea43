"""The report: one page, and a trace, from what a run has left behind."""
