"""Allreduce schedules as data, one file each: which rank sends which part to whom, and whether it is added or
copied."""
