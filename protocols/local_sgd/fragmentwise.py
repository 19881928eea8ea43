"""The mean of one fragment per round (`aggregation.fragments`): the other fragments are not sent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torch import Tensor

from ...aggregation.fragments import Fragments
from ...aggregation.mean import Mean
from ..offload import off_loop
from ..transfer.chunks import Key
from .averagers import Averager, Owed
from .rounds import Contribution


class FragmentAverager:
    """`averagers`: one for each fragment, as each keeps its own compression residual; no checkpoint has these."""

    owed: Owed | None = None

    def __init__(self, averagers: Sequence[Averager], fragments: Fragments) -> None:
        self._averagers, self._fragments, self._last = averagers, fragments, averagers[0]

    async def mean(self, contribution: Contribution, anchor: Tensor, key: Key) -> tuple[Mean | None, int]:
        """The mean of this round's fragment; all other fragments are those of `anchor`."""
        turn = self._fragments.turn(key[1])
        self._last, (start, stop) = self._averagers[turn], self._fragments.parts[turn]
        brought = replace(contribution, vector=contribution.vector[start:stop])
        mean, mark = await self._last.mean(brought, anchor[start:stop], key)
        if mean is None:
            return None, mark
        vector = await off_loop(anchor.nbytes, anchor.clone)
        vector[start:stop] = mean.vector
        return mean._replace(vector=vector), mark

    def committed(self) -> None:
        self._last.committed()
