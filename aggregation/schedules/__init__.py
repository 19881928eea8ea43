"""Allreduce schedules as data, one file each: which rank sends which part to which other, and whether it is added or
copied.
"""
