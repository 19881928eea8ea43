"""ZeroMQ: the transport between real processes. The pitfalls of libzmq (Z-numbers, docs/zeromq.md) are handled here."""
