"""Local-update SGD over allreduce: each peer takes some local steps, then all peers take the weighted mean of their
models."""
