"""Memory that peers on one machine share, and sums in it. Only `segment` knows how the memory is allocated and
mapped.
"""
