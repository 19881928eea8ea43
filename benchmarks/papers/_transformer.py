"""A small character-level transformer on real text: the reference of the Python language, as pydoc has it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

WIDTH, LAYERS, HEADS, CONTEXT = 32, 2, 2, 32
BATCH = 16
"""Sequences in a batch of one peer."""
LEAST, WARM_UP = 0.1, 50
PRETRAINING_RATE, PRETRAINING_BATCH = 12e-3, 64
_HELD_OUT, _ROUNDS_HELD_OUT = 0.1, 8

Batch = tuple[Tensor, Tensor]


class Text:
    """The text as numbers of characters; its last tenth is held out."""

    def __init__(self) -> None:
        text = "\n".join(topics[name] for name in sorted(topics))
        numbers = {character: number for number, character in enumerate(sorted(set(text)))}
        whole = torch.tensor([numbers[character] for character in text])
        cut = int(len(whole) * (1 - _HELD_OUT))
        self.characters, self.train, self.held_out = len(numbers), whole[:cut], whole[cut:]

    def batches(self, part: int, seed: int) -> Iterator[Batch]:
        """Drawn from all of the training text, for each part and seed others."""
        generator = torch.Generator().manual_seed(100 * seed + part)
        while True:
            yield self.draw(BATCH, generator)

    def draw(self, count: int, generator: torch.Generator) -> Batch:
        return _draw(self.train, count, generator)

    def loss_held_out(self, model: nn.Module) -> float:
        """On the same sequences each time, nats a character."""
        generator = torch.Generator().manual_seed(99)
        with torch.no_grad():
            losses = [loss(model, _draw(self.held_out, 64, generator)).item() for _ in range(_ROUNDS_HELD_OUT)]
        return sum(losses) / len(losses)


def _draw(text: Tensor, count: int, generator: torch.Generator) -> Batch:
    starts = torch.randint(len(text) - CONTEXT - 1, (count, 1), generator=generator)
    sequences = text[starts + torch.arange(CONTEXT + 1)]
    return sequences[:, :-1], sequences[:, 1:]


def loss(model: nn.Module, batch: Batch) -> Tensor:
    inputs, following = batch
    return functional.cross_entropy(model(inputs).flatten(0, 1), following.flatten())


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.look, self.join = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        queries, keys, values = (
            part.unflatten(2, (HEADS, -1)).transpose(1, 2) for part in self.look(self.before(x)).split(WIDTH, dim=2)
        )
        seen = functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.join(seen.transpose(1, 2).flatten(2))
        out: Tensor = x + self.think(self.between(x))
        return out


class Transformer(nn.Module):
    def __init__(self, characters: int) -> None:
        super().__init__()
        self.character, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.out = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, characters))

    def forward(self, characters: Tensor) -> Tensor:
        x: Tensor = self.character(characters) + self.place.weight[: characters.shape[1]]
        out: Tensor = self.out(self.blocks(x))
        return out


class Scheduled(torch.optim.AdamW):
    """AdamW whose learning rate rises for `WARM_UP` steps and falls along a cosine to a tenth at the end."""

    def __init__(self, parameters: Iterator[nn.Parameter], steps: int, highest: float) -> None:
        super().__init__(parameters, lr=highest, betas=(0.9, 0.99), weight_decay=0.1)
        self.taken, self.steps, self.highest = 0, steps, highest
        self.register_step_pre_hook(lambda *_: self._set_rate())

    def _set_rate(self) -> None:
        fallen = 0.5 * (1 + math.cos(math.pi * self.taken / self.steps))
        rate = self.highest * min(1.0, (self.taken + 1) / WARM_UP) * (LEAST + (1 - LEAST) * fallen)
        for group in self.param_groups:
            group["lr"] = rate
        self.taken += 1


@dataclass(frozen=True)
class Start:
    """What all systems begin with: the network, and which order of the text."""

    text: Text
    model: Transformer
    seed: int


@cache
def pretrained(seed: int, steps: int) -> Start:
    """As the paper does it: what all runs begin with has been trained by one worker."""
    torch.manual_seed(seed)
    text = Text()
    model = Transformer(text.characters)
    optimizer = Scheduled(model.parameters(), steps, PRETRAINING_RATE)
    generator = torch.Generator().manual_seed(1000 + seed)
    for _ in range(steps):
        model.zero_grad()
        loss(model, text.draw(PRETRAINING_BATCH, generator)).backward()
        optimizer.step()
    return Start(text, model, seed)
