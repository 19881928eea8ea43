"""Links: over any transport, each message arrives exactly once, in order and under credit."""
