"""Stalls: peers that keep the others waiting are reported, and given up after a patience."""
