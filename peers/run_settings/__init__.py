"""The settings of a run as a whole, with those of its conversation: read, checked, written, and documented."""
