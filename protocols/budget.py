"""A budget limits the bytes that a peer sends and receives: by a rate in each direction, and by a number of bytes a day
of both directions together.

The classes here count and tell how long to wait; the transport and the links keep to it. Bytes that arrive although
nothing is left are taken and counted all the same. All bytes count as on the wire, packet headers included. Times are
seconds on the running loop's clock, which is monotonic: a budget needs to know how long a peer has run, and not the
time of day.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import dataclass

from .link_spec import acknowledgement_bytes, link_bytes

DAY_S = 86_400.0
_USED = 0.93
"""The share of a rate to which frames are paced. The rest is for bytes that are not seen here: the kernel's handshakes
and retransmissions."""
_LATE_S = 0.01
"""A pacer makes up for timers that fire late, by at most this many seconds."""
_SOON_S = 1e-6
"""A wait below this many seconds counts as none: a timer for it might fire before the wait is over."""
_CHUNK_S, CHUNK_BYTES_MIN, _CHUNK_BYTES_MAX = 0.2, 2048, 32 * 1024
CONNECTION_BYTES = 1500
"""Bytes in each direction that make a connection: packets of TCP, the greeting of ZMTP, the handshake of CURVE."""


class Pacer:
    """Keeps frames to a rate: in any second at most `rate_Bps` bytes, and those of one frame more, pass. (It paces to
    93 % of that rate, as some bytes of the link are not seen here.) The sender asks `wait_s` before it sends a frame,
    and calls `charge` when it does. All times are on the loop's clock."""

    def __init__(self, rate_Bps: float) -> None:
        self._rate_Bps, self._free_s = rate_Bps * _USED, -math.inf

    def wait_s(self, now: float, lead_s: float = 0.0) -> float:
        """Seconds to wait until the bytes charged so far have passed at the rate, less `lead_s`; 0: no wait is
        needed."""
        wait_s = self._free_s - lead_s - now
        return wait_s if wait_s > _SOON_S else 0.0

    def charge(self, size: int, now: float) -> None:
        """Note that a frame of `size` bytes passes at the time `now`: later frames have to wait for it."""
        self._free_s = max(self._free_s, now - _LATE_S) + size / self._rate_Bps


class Day:
    """The allowance of bytes, sent and received together, of at most `bytes_a_day` in any 24 hours.

    It is a token bucket. The bucket holds half of `bytes_a_day` and is full at the beginning; the other half flows in
    evenly over the day. When less than `reserve_bytes` are left, the peer has to sleep until the bucket is half full
    again. A process that is started again begins with the `left_bytes` of the process before it (None: with a full
    bucket; more than a full bucket counts as that): no clock tells for how long the peer was away.
    """

    def __init__(self, bytes_a_day: int, left_bytes: float | None = None) -> None:
        self.bytes_a_day = bytes_a_day
        self.on_spent: list[Callable[[], None]] = []
        """Functions without arguments. They are called, within `charge`, each time that the peer comes to have to
        sleep: when less than `reserve_bytes` are left."""
        self._most = bytes_a_day / 2
        self._left = self._most if left_bytes is None else min(self._most, left_bytes)
        self._at: float | None = None
        self._must_sleep = self._asleep = False

    @property
    def reserve_bytes(self) -> float:
        """Bytes that are kept for the messages with which the peer leaves the run: 256 KiB, or an eighth of
        `bytes_a_day` if that is less."""
        return min(256 * 1024, self._most / 4)

    def left_bytes(self, now: float) -> float:
        """Bytes that may be sent and received at the time `now`; negative when more bytes were charged than were
        left. `now` must not be before that of an earlier call of any method."""
        passed_s, self._at = (0.0 if self._at is None else now - self._at), now
        self._left = min(self._most, self._left + passed_s * (self.bytes_a_day - self._most) / DAY_S)
        return self._left

    def charge(self, size: int, now: float) -> None:
        """Note that `size` bytes are sent or received now. If the peer has to sleep from now on, and had not to before,
        calls the functions in `on_spent`."""
        self._left = self.left_bytes(now) - size
        if not self._must_sleep and self._left < self.reserve_bytes:
            self._must_sleep = True
            for told in [*self.on_spent]:
                told()

    def sleeps_s(self, now: float) -> float:
        """Seconds from `now` until a sleeping peer may wake, with the bucket half full; 0 or negative: it may wake
        already."""
        wanted = self._most / 2 - self.left_bytes(now)
        return wanted * DAY_S / (self.bytes_a_day - self._most)

    @property
    def must_sleep(self) -> bool:
        """Whether the peer has to sleep, or sleeps: less than `reserve_bytes` were left at a charge, and `asleep` has
        not been set to False since."""
        return self._must_sleep

    @property
    def asleep(self) -> bool:
        """Whether the peer sleeps, and sends nothing. Others set it, never this class by itself. Setting it to False
        also ends the need to sleep (`must_sleep`)."""
        return self._asleep

    @asleep.setter
    def asleep(self, asleep: bool) -> None:
        self._asleep = asleep
        self._must_sleep = self._must_sleep and asleep


@dataclass(slots=True)
class Budget:
    """The limits of one peer. `rate_Bps`: bytes a second in each direction; None: no limit. `day`: bytes a day of both
    directions together; None: no limit. `held_bytes`: the most bytes of data, from all peers together, that may have
    arrived and wait to be used. `up`, `down`: the pacers of the two directions, made here; None: no rate is set."""

    rate_Bps: float | None
    day: Day | None
    held_bytes: int
    up: Pacer | None = None
    down: Pacer | None = None

    def __post_init__(self) -> None:
        if self.rate_Bps is not None:
            self.up, self.down = Pacer(self.rate_Bps), Pacer(self.rate_Bps)

    @property
    def chunk_bytes(self) -> int | None:
        """The largest payload of a chunk of data, in bytes, so that it holds up the messages behind it only shortly:
        what passes in 0.2 s at the rate, in whole multiples of 2 KiB, but at least 2 KiB and at most 32 KiB. None: no
        rate is set."""
        if self.rate_Bps is None:
            return None
        whole = int(self.rate_Bps * _CHUNK_S) // CHUNK_BYTES_MIN * CHUNK_BYTES_MIN
        return max(CHUNK_BYTES_MIN, min(_CHUNK_BYTES_MAX, whole))

    @property
    def day_bytes_left(self) -> float | None:
        """Bytes that are left of the day's allowance now, as `Day.left_bytes`; None: there is no limit a day."""
        return None if self.day is None else self.day.left_bytes(asyncio.get_running_loop().time())

    @property
    def is_spent(self) -> bool:
        """Whether nothing may be sent now: the day's bytes are used up, or the peer sleeps."""
        day = self.day
        return day is not None and (day.asleep or day.left_bytes(asyncio.get_running_loop().time()) <= 0)

    def sent(self, size: int) -> None:
        """Charge `size` bytes of a connection that leave now, the headers of their packets, and the acknowledgements of
        the other side's kernel for them."""
        self._charge(link_bytes(size), acknowledgement_bytes(size))

    def received(self, size: int) -> None:
        """Charge `size` bytes of a connection that have arrived, the headers of their packets, and the acknowledgements
        of this side's kernel for them."""
        self._charge(acknowledgement_bytes(size), link_bytes(size))

    def connected(self) -> None:
        """Charge the bytes that it takes to make a connection: 1500 in each direction."""
        self._charge(CONNECTION_BYTES, CONNECTION_BYTES)

    def _charge(self, up: int, down: int) -> None:
        now = asyncio.get_running_loop().time()
        if self.up is not None and self.down is not None:
            self.up.charge(up, now)
            self.down.charge(down, now)
        if self.day is not None:
            self.day.charge(up + down, now)
