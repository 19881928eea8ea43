"""Link quality: the bandwidth and latency of links between peers, and which addresses can be reached."""
