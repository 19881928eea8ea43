"""A peer of Hivemind, alone with the Python that has it: it is told what to do, and answers, in lines of JSON.

`{"index": 1, "peers": 4, "host": "127.0.0.1", "contacts": []}` makes its DHT, and is answered with its `addresses`;
`{"elements": n}` fills a vector with index + 1; `{"average": true}` averages it, and is answered with the `seconds`
from the call to the result in the vector, which is checked. The end of the lines ends it.
"""

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import hivemind
import torch
from hivemind.averaging import DecentralizedAverager
from hivemind.compression import NoCompression

MATCHMAKING_S, REQUEST_S = 1.0, 0.5
"""How long peers look for a full group before they look anew, and for an answer: the defaults, 5 and 3 s, are no
faster where all is well, and slower where two have asked each other."""
GROUP_S = 60.0
"""Within this a group is found, or the benchmark ends."""


def averager_of(dht: hivemind.DHT, elements: int, peers: int) -> DecentralizedAverager:
    """For vectors of so many floats. It sends them as they are, and begins as soon as all are there."""
    return DecentralizedAverager(
        [torch.zeros(elements)], dht, start=True, prefix=f"vectors_of_{elements}",
        target_group_size=peers, min_group_size=peers, min_matchmaking_time=MATCHMAKING_S, request_timeout=REQUEST_S,
        compression=NoCompression(), state_compression=NoCompression(), allow_state_sharing=False,
    )  # fmt: skip


def answers(orders: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """One to each order."""
    about = next(orders)
    index, peers, averager, elements = about["index"], about["peers"], None, 0
    dht = hivemind.DHT(about["contacts"], start=True, host_maddrs=[f"/ip4/{about['host']}/tcp/0"], use_relay=False)
    yield {"addresses": [str(address) for address in dht.get_visible_maddrs()]}
    for order in orders:
        if "elements" in order:
            if averager is None or order["elements"] != elements:
                if averager is not None:
                    averager.shutdown()
                elements = order["elements"]
                averager = averager_of(dht, elements, peers)
            with averager.get_tensors() as (vector,):
                vector.fill_(index + 1.0)
            yield {}
        else:
            began = time.perf_counter()
            averager.step(timeout=GROUP_S)
            taken = time.perf_counter() - began
            with averager.get_tensors() as (vector,):
                assert bool((vector == (peers + 1) / 2).all()), "hivemind: a wrong mean"
            yield {"seconds": taken}
    if averager is not None:
        averager.shutdown()
    dht.shutdown()


def main() -> None:
    torch.set_num_threads(1)
    ours = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else is printed is no answer
    for answer in answers(map(json.loads, sys.stdin)):
        print(json.dumps(answer), file=ours, flush=True)


if __name__ == "__main__":
    main()
