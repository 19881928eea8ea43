"""Memory that peers on one machine share: sums in it, and boards that one peer writes and others read. Only `segment`
knows how the memory is allocated.
"""
