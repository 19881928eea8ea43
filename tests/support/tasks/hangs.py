"""As `steady`, but the data loader of part 1 gives 40 batches, and then no more for ever."""

import threading

from steady import drawn, evaluate, loss, model, optimizer  # noqa: F401
from torch.utils.data import DataLoader, Subset


def data(part: int, parts: int):
    chosen = Subset(drawn(1, 1440), range(part, 1440, parts))
    while True:
        for number, batch in enumerate(DataLoader(chosen, batch_size=8)):
            if (part, number) == (1, 40):
                threading.Event().wait()
            yield batch
