"""The averager of runs with fragments (`aggregation.fragments`): each round averages one fragment, and the others are
not sent."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ...aggregation.fragments import Fragments
from ...aggregation.mean import Mean
from ..offload import off_loop
from ..transfer.chunks import AttemptId
from .averagers import Averager, Owed
from .rounds import Contribution


class FragmentAverager:
    """Averages one fragment a round. `averagers`: one for each fragment, because each keeps its own compression
    residual. These residuals are in no checkpoint."""

    owed: Owed | None = None

    def __init__(self, averagers: Sequence[Averager], fragments: Fragments) -> None:
        self._averagers, self._fragments, self._last = averagers, fragments, averagers[0]

    async def mean(self, contribution: Contribution, anchor: Tensor, attempt: AttemptId) -> tuple[Mean | None, int]:
        """The mean of this round's fragment, in a whole vector [n] whose other fragments are `anchor`'s; else as
        `Averager.mean`."""
        index = self._fragments.index(attempt[1])
        self._last, (start, stop) = self._averagers[index], self._fragments.of_size(len(anchor)).parts[index]
        statistics = max(0, stop - max(start, len(anchor) - contribution.statistics))
        brought = contribution._replace(vector=contribution.vector[start:stop], statistics=statistics)
        mean, mark = await self._last.mean(brought, anchor[start:stop], attempt)
        if mean is None:
            return None, mark
        vector = await off_loop(anchor.nbytes, anchor.clone)
        vector[start:stop] = mean.vector
        return mean._replace(vector=vector), mark

    def committed(self) -> None:
        self._last.committed()
