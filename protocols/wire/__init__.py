"""The wire: how messages are written, checked and read."""
