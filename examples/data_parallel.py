"""Synchronous data parallel: as with DistributedDataParallel, every backward ends with the mean gradient of all peers.

samovar train examples/data_parallel.py --average gradients --peers 4

The large-minibatch recipe (Goyal et al., 2017): the learning rate grows with the peers, gradually over the first steps,
and batch norm stays each peer's own.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import samovar

STEPS, BATCH, RATE, WARMUP = 300, 32, 0.05, 50


def main() -> None:
    run = samovar.join(average="gradients")
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0

    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE * run.parts, momentum=0.9)
    optimizer = run.wrap(optimizer, model)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=1 / run.parts, total_iters=WARMUP)

    mine = torch.nonzero(~held_out).flatten()[run.part :: run.parts]
    for _ in range(STEPS):
        batch = mine[torch.randint(len(mine), (BATCH,))]
        run.samples(len(batch))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        run.loss(loss)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        optimizer.step()
        warmup.step()

    run.leave()
    model.eval()
    accuracy = (model(inputs[held_out]).argmax(1) == labels[held_out]).float().mean().item()
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
