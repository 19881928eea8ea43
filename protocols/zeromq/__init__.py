"""ZeroMQ: the transport between real processes, and all that knows of its traps."""
