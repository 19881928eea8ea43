"""The vectors of a model's size that a peer with a codec holds for a moment, beside those that it keeps."""

import asyncio
import sys
import weakref
from typing import Any

import pytest
import torch
from live import python
from torch import Tensor

from samovar.aggregation.codecs.top_k import TopK
from samovar.protocols.gossip.algorithms.differences import Differences
from samovar.protocols.gossip.estimates import Estimates
from samovar.protocols.gossip.messages import Published

MEASURED = """
import asyncio
import math
from pathlib import Path

import torch
from samovar.aggregation.codecs.top_k import TopK
from samovar.peers.machine.process_memory import return_freed_memory
from samovar.peers.machine.torch_imports import do_without_convolution_libraries
from samovar.peers.task.convolutions import SmallConvolutions
from samovar.protocols.collectives.bound import Bound
from samovar.protocols.gossip.algorithms.algorithm import Held
from samovar.protocols.gossip.algorithms.choco import Choco
from samovar.protocols.gossip.algorithms.differences import Differences
from samovar.protocols.gossip.mixing import Own, Summands, distance, mix
from samovar.protocols.work import Update

torch.set_num_threads(1)
return_freed_memory()
do_without_convolution_libraries()


def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def most(work):
    "How far the memory rises in this work, in vectors."
    work()
    before = kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    work()
    return 1024 * (kib("VmHWM") - before) / own.nbytes


codec, own, other = TopK(0.01), torch.randn(8 << 20), torch.randn(8 << 20)
difference = codec.encode(own, 1)
mixed, layer = torch.randn(8 << 20), torch.nn.Conv2d(16, 4, 3, padding=1)
images = torch.randn(1 << 11, 16, 16, 16)  # as large as the vector


@torch.no_grad()
def convolved():
    with SmallConvolutions():
        layer(images)


def summed():
    summands = Summands(Own(own, 1.0), 0.5, {"a": other}, {"a": 0.5})
    asyncio.run(mix(summands, own, Bound(math.inf)))


print(most(lambda: Differences(codec).encoded(own, other, 1, "a")))
print(most(lambda: Differences(codec).decoded(own, difference)))
print(most(summed))
print(most(lambda: Choco(0.1).mix(Held(own), Update(vector=own), own, mixed)))
print(most(lambda: distance(own, other)))
print(most(convolved))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is told by Linux")
def test_no_step_of_a_mix_makes_more_vectors_than_its_result() -> None:
    done = python("-c", MEASURED)
    assert done.returncode == 0, done.stderr
    encoded, decoded, summed, mixed, distance, convolved = map(float, done.stdout.split())
    assert max(encoded, decoded, summed) < 1.5, "the new vector, and pieces"
    assert max(mixed, distance) < 0.5, "pieces: the mix lies in the memory of the sum"
    assert convolved < 1.0, "a quarter for the result, and pieces: unfolded at once it takes nine vectors"


async def test_the_estimate_before_is_gone_before_another_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    size, codec = 1 << 18, TopK(0.01)
    every = Estimates(Differences(codec), Published(0, 0, torch.zeros(size)))
    difference = codec.encode(torch.randn(size), 1)
    former, held = list[weakref.ref[Tensor]](), list[int]()
    for giver in ("a", "b", "c"):
        vector = torch.randn(size)
        former.append(weakref.ref(vector))
        every.took(giver, Published(1, 1, vector))
        del vector
    usual = Differences.decoded

    def noting(*about: Any) -> Tensor:
        held.append(sum(one() is not None for one in former))
        return usual(*about)

    monkeypatch.setattr(Differences, "decoded", noting)

    async def led(giver: str) -> Published:
        before = await every.found(giver, 1, b"")
        assert before is not None
        return Published(2, 2, await every.leads_to(before, difference))

    async def taken(giver: str) -> None:
        every.took(giver, await led(giver))

    await asyncio.gather(*map(taken, ("a", "b", "c")))
    assert held == [3, 2, 1]
