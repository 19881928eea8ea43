"""Sums over all members of a group: schedules executed chunk by chunk, added in the same order on every rank."""
