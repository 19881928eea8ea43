"""An ordinary PyTorch training script, made distributed by the five lines marked with (1) to (5).

samovar train examples/existing_loop.py --peers 4      (or plain: python examples/existing_loop.py)
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

import samovar  # (1)

STEPS, BATCH = 1200, 16


def main() -> None:
    run = samovar.join()  # (2)
    digits = load_digits()
    inputs = torch.tensor(digits.data, dtype=torch.float32) / 16
    labels = torch.tensor(digits.target)
    held_out = torch.arange(len(labels)) % 5 == 0

    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
    optimizer = run.wrap(optimizer, model)  # (3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)

    mine = torch.nonzero(~held_out).flatten()[run.part :: run.parts]
    for _ in range(STEPS):
        batch = mine[torch.randint(len(mine), (BATCH,))]
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs[batch]), labels[batch])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        run.loss(loss)  # (4)
        optimizer.step()
        scheduler.step()

    run.leave()  # (5)
    accuracy = (model(inputs[held_out]).argmax(1) == labels[held_out]).float().mean().item()
    print(f"accuracy {accuracy:.3f}")


if __name__ == "__main__":
    main()
