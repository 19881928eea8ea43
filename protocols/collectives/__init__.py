"""Sums over all members of a group: schedules carried out chunk by chunk, in the same order on every rank."""
