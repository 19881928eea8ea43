"""The settings of simulated runs with two servers and three workers, whose small models are cut into 16 ranges."""

from typing import Any

TWO_SERVERS: dict[str, Any] = {
    "protocol": "parameter-server",
    "device": "cpu",
    "servers": 2,
    "ranges": 16,
    "peers": 3,
}
