"""Low-rank adapters (LoRA, Hu et al., arXiv 2106.09685) on a small frozen transformer: only the adapters travel."""

import math

import torch
from torch import Tensor, nn

CONFIG = {"width": 128, "heads": 4, "layers": 2, "words": 200, "length": 16, "rank": 2}
ROWS, STEPS = 4, 8


class Adapted(nn.Module):
    """A frozen linear layer W x + (A B) x, of which A [out, rank] and B [rank, in] are trained."""

    def __init__(self, layer: nn.Linear, rank: int) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, layer.in_features) / math.sqrt(layer.in_features))
        self.up = nn.Parameter(torch.zeros(layer.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) + x @ self.down.T @ self.up.T


class Transformer(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, words: int, length: int, rank: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width).requires_grad_(False)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02, requires_grad=False)
        block = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True)
        self.blocks = nn.TransformerEncoder(block, layers, enable_nested_tensor=False).requires_grad_(False)
        for layer in self.blocks.layers:
            layer.linear1, layer.linear2 = Adapted(layer.linear1, rank), Adapted(layer.linear2, rank)
        self.out = nn.Linear(width, words).requires_grad_(False)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        return self.out(self.blocks(self.embedding(tokens) + self.places[: tokens.shape[1]], mask=mask, is_causal=True))


def model():
    return Transformer(**CONFIG)


def optimizer(parameters):
    return torch.optim.AdamW((one for one in parameters if one.requires_grad), lr=1e-3)


def data(part, parts):
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(CONFIG["words"], (STEPS, ROWS, CONFIG["length"]), generator=generator)
    return [batch[part * ROWS // parts : (part + 1) * ROWS // parts] for batch in tokens]


def loss(model, batch):
    return nn.functional.cross_entropy(model(batch[:, :-1].contiguous()).flatten(0, 1), batch[:, 1:].flatten())


def loop(run, model):
    adam = run.wrap(optimizer(model.parameters()), model)
    for batch in data(run.part, run.parts):
        adam.zero_grad()
        loss(model, batch).backward()
        adam.step()
    run.leave()
