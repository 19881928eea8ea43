"""The simulation: peers in virtual time, on a virtual network, with faults. Only loop, transport and compute differ
from those of a real run."""
