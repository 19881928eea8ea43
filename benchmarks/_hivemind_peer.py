"""A peer of Hivemind, run by the Python that has it: it is told what to do, and answers, in lines of JSON.

`{"index": 1, "peers": 4, "host": "127.0.0.1", "contacts": []}` makes its DHT and is answered with its `addresses`;
`{"elements": n}` fills a vector with index + 1; `{"go": true}` averages it, and is answered with the `seconds`
from the call to the result in the vector, null when that is not the mean. The end of the lines ends it.
"""

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import torch
from hivemind import DHT
from hivemind.averaging import DecentralizedAverager
from hivemind.compression import NoCompression
from hivemind.p2p import P2P

MATCHMAKING_S, REQUEST_S = 1.0, 0.5
"""After this without a full group, or without an answer, peers look anew. A group that is full begins at once, so
smaller ones gain nothing where all is well; the defaults are 5 and 3 s."""
GROUP_S = 60.0
"""Within this a group is found, or the benchmark fails."""


def averager_of(elements: int, dht: DHT, peers: int) -> DecentralizedAverager:
    """It averages vectors of so many floats, sent as they are, once all peers are there and not before."""
    return DecentralizedAverager(
        [torch.zeros(elements)], dht, start=True, prefix=f"vectors_of_{elements}",
        target_group_size=peers, min_group_size=peers, min_matchmaking_time=MATCHMAKING_S, request_timeout=REQUEST_S,
        compression=NoCompression(), state_compression=NoCompression(), allow_state_sharing=False,
    )  # fmt: skip


def answers(orders: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One to each order."""
    if (about := next(orders, None)) is None:
        return
    index, peers, averager = about["index"], about["peers"], None
    dht = DHT(about["contacts"], start=True, host_maddrs=[f"/ip4/{about['host']}/tcp/0"])
    yield {"addresses": [str(address) for address in dht.get_visible_maddrs()]}
    for order in orders:
        if "elements" in order:
            if averager is None or averager.total_size != order["elements"]:
                if averager is not None:
                    averager.shutdown()
                averager = averager_of(order["elements"], dht, peers)
            with averager.get_tensors() as (vector,):
                vector.fill_(index + 1.0)
            yield {}
        else:
            assert averager is not None, "told to average before it was told what"
            began = time.perf_counter()
            averager.step(timeout=GROUP_S)
            taken = time.perf_counter() - began
            with averager.get_tensors() as (vector,):
                right = bool((vector == (peers + 1) / 2).all())
            yield {"seconds": taken if right else None}
    if averager is not None:
        averager.shutdown()
    dht.shutdown()


def main() -> None:
    torch.set_num_threads(1)  # as all systems here; with more it is slower, as there are more peers than cores
    to_parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(BrokenPipeError):
        P2P._UNIX_SOCKET_PREFIX = f"/unix{folder}/"  # it forgets to remove some
        for answer in answers(map(json.loads, sys.stdin)):
            print(json.dumps(answer), file=to_parent, flush=True)


if __name__ == "__main__":
    main()
