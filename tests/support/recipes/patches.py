"""A small vision transformer on patches of 7 x 7 pixels, with AdamW, warmup, clipping and label smoothing."""

import torch
from fashion import data, epochs, evaluate
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

WIDTH, PATCH = 32, 7
clip = 1.0
__all__ = ["data", "evaluate"]


class VisionTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, WIDTH, PATCH, PATCH)
        self.places = nn.Parameter(torch.randn(1, 17, WIDTH) * 0.02)
        self.token = nn.Parameter(torch.zeros(1, 1, WIDTH))
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(x), -1, -1), tokens], 1) + self.places
        return self.head(self.blocks(tokens)[:, 0])


def model():
    return VisionTransformer()


def optimizer(model):
    plain = [one for one in model.parameters() if one.dim() < 2]
    decayed = [one for one in model.parameters() if one.dim() >= 2]
    return torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}], lr=3e-3
    )


def lr_schedule(optimizer, steps):
    return LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 30) * max(0.0, 1 - step / steps))


def loss(model, batch):
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels, label_smoothing=0.05)


def loop(run, model, steps=600):
    adam = run.wrap(optimizer(model), model)
    rates = lr_schedule(adam, steps)
    for batch in epochs(data(run.part, run.parts, workers=2), steps):
        adam.zero_grad()
        loss(model, batch).backward()
        nn.utils.clip_grad_norm_(model.parameters(), clip)
        adam.step()
        rates.step()
    run.leave()
