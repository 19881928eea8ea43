"""Codecs, one file each: they encode a vector in fewer bytes. Error feedback keeps the encoding error for the next
round.
"""
