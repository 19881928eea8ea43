"""A world to say it in: virtual time, a virtual network, and faults on demand."""
