"""A connection that ends while a peer reads a message of several frames costs that peer nothing but the connection."""

from __future__ import annotations

import asyncio
import select
import sys
from typing import Any

import zmq
from live import python
from town import LOCAL

from samovar.protocols.transport import Arrivals
from samovar.protocols.zeromq.transport import ZeroMQTransport

FRAMES = 100
"""After so many frames libzmq looks whether a connection has ended, be it in the midst of a message."""


async def read_half() -> int:
    """How many messages come from a peer that answers by our own call, and goes when half of the last one is read."""
    with zmq.Context() as context, context.socket(zmq.ROUTER) as peer:
        peer.linger = 0
        transport, came = ZeroMQTransport(None, listen=LOCAL), asyncio.Queue[object]()
        transport.open(Arrivals(lambda *frame: came.put_nowait(frame), lambda peer: None, lambda *what: None))
        transport.dial("peer", f"tcp://127.0.0.1:{peer.bind_to_random_port('tcp://127.0.0.1')}")
        transport.post("peer", b"hello", b"")
        route, *_ = await asyncio.to_thread(peer.recv_multipart)
        (link,) = transport._ways
        read, socket = 0, link.tap._socket
        receive = socket._receive

        def noted(*flags: Any, **more: Any) -> zmq.Frame:
            nonlocal read
            frame = receive(*flags, **more)
            read += frame.bytes in (b"header", b"payload")
            if frame.bytes == b"header" and read == FRAMES - 1:
                peer.close()
                assert link.monitor._socket._socket.poll(30_000), "it has ended"  # type: ignore[attr-defined]
                select.select([link.tap._fd], [], [], 0.5)  # where libzmq tells the socket so: that it has been told
            return frame

        socket._receive = noted
        for _ in range(FRAMES // 2):
            peer.send_multipart([route, b"header", b"payload"])
        for _ in range(FRAMES // 2):
            await asyncio.wait_for(came.get(), 30)
        transport.close()
        return read


def test_a_sender_that_goes_amid_its_message_does_not_end_the_reader() -> None:
    """In a process of its own: the fault of libzmq that this is about ends it."""
    code = f"import runpy, sys; sys.path[:] = {sys.path!r}; runpy.run_path({__file__!r}, run_name='__main__')"
    done = python("-c", code)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, str(FRAMES), "")


if __name__ == "__main__":
    print(asyncio.run(read_half()))
