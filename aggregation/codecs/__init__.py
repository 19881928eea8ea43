"""Codecs, one file each: a vector in fewer bytes, and what must be remembered so that nothing of it is lost."""
