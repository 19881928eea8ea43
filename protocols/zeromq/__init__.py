"""ZeroMQ: the transport between real processes. The traps of libzmq (Z-numbers, docs/zeromq.md) are handled here."""
