"""The simulation: the same peers in virtual time, on a virtual network, with faults on demand."""
