"""Records: what peers write down of a run."""
