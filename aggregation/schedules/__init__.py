"""Allreduce schedules, one file each, as data: which rank sends which part to whom, and what is done with it."""
