"""Local-update SGD over allreduce: local steps, then the weighted mean of all peers' models."""
