"""Codecs, one file each, which encode a vector in fewer bytes; and error feedback, which keeps what they leave out."""
