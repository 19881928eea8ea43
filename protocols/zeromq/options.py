"""Options that every socket gets, by libzmq's names. Z-numbers name pitfalls of libzmq, which docs/zeromq.md
explains."""

from __future__ import annotations

from ..wire.frames import HEADER_BYTES_MAX, PAYLOAD_BYTES_MAX
from .reader import MESSAGES_MAX

OPTIONS = {
    # Z4, Z5: bound each frame. Z6, Z7: no ZMTP heartbeats, they cut slow big frames; `Pulse` is ours.
    "maxmsgsize": max(PAYLOAD_BYTES_MAX, HEADER_BYTES_MAX) + 4096,
    "linger": 0,  # Z10
    "sndhwm": MESSAGES_MAX,  # Z1: never reached when sending, as the link's window is below it
    "rcvhwm": 256,
    "immediate": 0,  # Z30: a connection that ends must not take away the rest of a message that is being read
    "handshake_ivl": 5000,  # Z26: a silent raw connection is closed after this
    "reconnect_ivl": 2**30,  # Z18, Z30: in twelve days, that is never: see `redial`
    "connect_timeout": 5000,
    "tcp_keepalive": 1,  # Z19: dead connections end
    "tcp_keepalive_idle": 60,
    "tcp_keepalive_intvl": 15,
}
